// The job, the minipods that each column may touch, and rows of minipods.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace spanfit {

using Random = std::mt19937_64;

constexpr int kMostMinipods = 128;
using Minipods = std::bitset<kMostMinipods>;

// A number of [0, 1), the same with every standard library, which std::uniform_real_distribution is not.
inline double uniform(Random& random) { return static_cast<double>(random() >> 11) * 0x1.0p-53; }

inline int below(Random& random, int count) { return static_cast<int>(uniform(random) * count); }

struct Task {
    int nrows, ncolumns, nminipods;
    int depth;       // most minipods of a column
    int row_spread;  // most minipods of a row
    std::vector<int> capacity;
};

// What was done, in about nanoseconds of a fast core: counted, so that it is the same on every machine.
struct Work {
    double done = 0;
    void add(double amount) { done += amount; }
};

// Y: which minipods each column may touch.
class Sets {
   public:
    Sets(int ncolumns, int nminipods)
        : nminipods_(nminipods), allowed_(ncolumns * nminipods), mask_(ncolumns), columns_of_(nminipods) {}

    bool has(int column, int minipod) const { return allowed_[column * nminipods_ + minipod]; }
    const std::vector<int>& columns_of(int minipod) const { return columns_of_[minipod]; }
    const Minipods& minipods_of(int column) const { return mask_[column]; }

    void add(int column, int minipod) {
        allowed_[column * nminipods_ + minipod] = 1;
        mask_[column].set(minipod);
        columns_of_[minipod].push_back(column);
    }

    void drop(int column, int minipod) {
        allowed_[column * nminipods_ + minipod] = 0;
        mask_[column].reset(minipod);
        for (auto& each : columns_of_[minipod])
            if (each == column) {
                each = columns_of_[minipod].back();
                columns_of_[minipod].pop_back();
                return;
            }
    }

    const std::vector<char>& bytes() const { return allowed_; }

   private:
    int nminipods_;
    std::vector<char> allowed_;
    std::vector<Minipods> mask_;
    std::vector<std::vector<int>> columns_of_;
};

// A row: the minipod of each column, and how many of its cells each of its minipods gives.
struct Pattern {
    std::vector<int> minipod;
    std::vector<std::pair<int, int>> takes;

    explicit Pattern(std::vector<int> minipod_of_column) : minipod(std::move(minipod_of_column)) {
        for (int m : minipod) {
            auto found = takes.begin();
            while (found != takes.end() && found->first != m) ++found;
            if (found == takes.end())
                takes.emplace_back(m, 1);
            else
                ++found->second;
        }
    }

    bool fits(const Sets& sets) const {
        for (int j = 0; j < static_cast<int>(minipod.size()); ++j)
            if (!sets.has(j, minipod[j])) return false;
        return true;
    }

    double cost(const std::vector<double>& prices) const {
        double sum = 0;
        for (auto& [m, cells] : takes) sum += cells * prices[m];
        return sum;
    }
};

using PatternPtr = std::shared_ptr<const Pattern>;

}  // namespace spanfit
