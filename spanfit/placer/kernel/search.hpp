// Climbs from random sets, one after the other.
#pragma once

#include <memory>

#include "climb.hpp"

namespace spanfit {

class Search {
   public:
    Search(Task task, std::uint64_t seed) : task_(std::move(task)), random_(seed) {}

    const Task& task() const { return task_; }
    double done() const { return work_.done; }

    // Goes on for so much work more, less what it took too much before; returns whether all rows were found.
    bool run(double work) {
        granted_ += work;
        while (work_.done < granted_) {
            if (!climb_ || is_lost(*climb_)) climb_ = scout();
            if (climb_->step()) return true;
            best_ = std::max(best_, climb_->best());
        }
        return false;
    }

    // The minipod of each cell, row by row; none before they were found.
    std::vector<int> cells() const { return climb_ ? climb_->cells() : std::vector<int>{}; }

    // Most rows, as a fraction, that any sets had.
    double best() const { return best_; }

   private:
    static constexpr int kPatience = 200;  // changes without a higher value, of sets that do not hold all rows
    static constexpr int kTries = 3;       // at whole rows, of those that do

    static bool is_lost(const Climb& climb) {
        return climb.holds_all() ? climb.ntried() >= kTries : climb.stalled() > kPatience;
    }

    // Returns a climb from random sets of one kind or another.
    std::unique_ptr<Climb> scout() {
        Sets sets(task_.ncolumns, task_.nminipods);
        if (below(random_, 2))
            scatter(sets);
        else
            band(sets);
        return std::make_unique<Climb>(task_, std::move(sets), random_, work_);
    }

    // Draws the sets of each column, large minipods in many of them.
    void scatter(Sets& sets) {
        for (int j = 0; j < task_.ncolumns; ++j) {
            std::vector<double> left(task_.capacity.begin(), task_.capacity.end());
            for (int taken = 0; taken < std::min(task_.depth, task_.nminipods); ++taken) {
                double point = uniform(random_) * std::accumulate(left.begin(), left.end(), 0.0);
                int drawn = -1;
                for (int m = 0; m < task_.nminipods && (drawn < 0 || point >= 0); ++m) {
                    if (left[m] == 0) continue;
                    drawn = m;
                    point -= left[m];
                }
                sets.add(j, drawn);
                left[drawn] = 0;
            }
        }
    }

    // Draws groups of columns, and gives each minipod to the group that lacks most, roughly from the largest on.
    void band(Sets& sets) {
        int most = std::min(task_.row_spread, task_.ncolumns);
        int least = std::min(most, (fewest_minipods() + task_.depth - 1) / task_.depth);
        int ngroups = least + below(random_, most - least + 1);
        std::vector<int> width(ngroups, task_.ncolumns / ngroups), taken(ngroups, 0), order(task_.nminipods);
        for (int left = task_.ncolumns % ngroups; left > 0; --left) ++width[below(random_, ngroups)];
        if (below(random_, 2)) {
            int giver = below(random_, ngroups);
            if (width[giver] > 1) {
                --width[giver];
                ++width[below(random_, ngroups)];
            }
        }
        std::vector<double> lacks(ngroups), size(task_.nminipods);
        for (int g = 0; g < ngroups; ++g) lacks[g] = 1.0 * width[g] * task_.nrows;
        for (int m = 0; m < task_.nminipods; ++m) size[m] = task_.capacity[m] * (0.8 + 0.4 * uniform(random_));
        std::iota(order.begin(), order.end(), 0);
        std::sort(order.begin(), order.end(), [&](int one, int other) { return size[one] > size[other]; });
        for (int m : order) {
            int to = -1;
            for (int g = 0; g < ngroups; ++g)
                if (taken[g] < task_.depth && (to < 0 || lacks[g] > lacks[to])) to = g;
            if (to < 0) break;
            lacks[to] -= task_.capacity[m];
            ++taken[to];
            int column = std::accumulate(width.begin(), width.begin() + to, 0);
            for (int j = column; j < column + width[to]; ++j) sets.add(j, m);
        }
    }

    // The fewest minipods that hold the job.
    int fewest_minipods() const {
        std::vector<int> sizes = task_.capacity;
        std::sort(sizes.rbegin(), sizes.rend());
        int count = 0;
        int left = task_.nrows * task_.ncolumns;
        while (left > 0 && count < task_.nminipods) left -= sizes[count++];
        return count;
    }

    Task task_;
    Random random_;
    Work work_;
    std::unique_ptr<Climb> climb_;
    double best_ = 0, granted_ = 0;
};

}  // namespace spanfit
