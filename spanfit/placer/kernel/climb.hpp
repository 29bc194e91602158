// A local search over the sets of the columns, by the value of the linear program over rows.
#pragma once

#include <array>
#include <set>

#include "rows.hpp"

namespace spanfit {

// Sets of one start, and the answer of their program, on the way to more rows.
class Climb {
   public:
    Climb(const Task& task, Sets sets, Random& random, Work& work)
        : task_(task), sets_(std::move(sets)), program_(task), random_(random), work_(work), heat_(start_heat()) {
        program_.solve(sets_, pool_, 0, work_);
        best_ = program_.value();
    }

    const Sets& sets() const { return sets_; }
    const std::vector<int>& cells() const { return cells_; }
    double best() const { return best_; }
    bool holds_all() const { return best_ >= task_.nrows - kSame; }

    // Changes since the best value was reached.
    int stalled() const { return stalled_; }

    // How often rows that were there as fractions were tried for long to be made whole.
    int ntried() const { return ntried_; }

    // Makes rows whole if there are enough, longer where the value has not risen for a while, else changes one set.
    // Returns whether all rows are there.
    bool step() {
        bool holds_rows = program_.value() >= task_.nrows - kSame;
        if (is_fresh_ && holds_rows) {
            is_fresh_ = false;
            if (makes_whole(kQuickExchanges)) return true;
        }
        bool is_ripe = holds_rows && program_.value() >= best_ - kNear && std::min(stalled_, since_tried_) >= kStalled;
        if (is_ripe && tried_.insert(sets_.bytes()).second) {
            since_tried_ = 0;
            heat_ = start_heat();
            ++ntried_;
            if (makes_whole(kExchanges)) return true;
        }
        change();
        return false;
    }

   private:
    static constexpr double kHeat = 0.003, kCooling = 0.995, kLeastHeat = 1e-3;  // of the annealing, in rows
    static constexpr double kSame = 1e-4;  // Values that differ by no more are the same.
    static constexpr int kStalled = 16;    // changes without a higher value, before rows are tried for long
    static constexpr double kNear = 0.3;   // rows that the value may then lie below the best
    static constexpr int kQuickExchanges = 1000, kExchanges = 30000;

    bool makes_whole(int exchanges) {
        WholeRows rows(task_, sets_, random_, work_);
        if (!rows.make(program_, pool_, exchanges)) return false;
        cells_ = rows.cells();
        return true;
    }

    double start_heat() const { return kHeat * task_.nrows; }

    // Changes one set, and takes it back where that costs too much for the heat.
    void change() {
        auto [column, in, out] = commended();
        ++stalled_;
        ++since_tried_;
        if (in < 0) return;
        Sets sets = sets_;
        sets.add(column, in);
        if (out >= 0) sets.drop(column, out);
        Program program = program_;
        program.solve(sets, pool_, program_.value() - 5 * heat_, work_);
        double lost = program_.value() - program.value();
        if (lost <= 0 || uniform(random_) < std::exp(-lost / heat_)) {
            sets_ = std::move(sets);
            program_ = std::move(program);
            is_fresh_ = true;
        }
        if (program_.value() > best_ + kSame) stalled_ = 0;
        best_ = std::max(best_, program_.value());
        heat_ = std::max(heat_ * kCooling, kLeastHeat);
    }

    // Returns (column, minipod to add, minipod to drop or -1): a change that the prices commend, with some noise; (-1,
    // -1, -1) where every column may touch every minipod.
    std::array<int, 3> commended() {
        int n = task_.nminipods, ncolumns = task_.ncolumns;
        const std::vector<double>& prices = program_.prices();
        gain_.assign(ncolumns * n, 0);
        loss_.assign(ncolumns * n, 0);
        program_.each_used([&](const PatternPtr& pattern, double rows) {
            bool has_room = static_cast<int>(pattern->takes.size()) < task_.row_spread;
            for (int j = 0; j < ncolumns; ++j) {
                double paid = prices[pattern->minipod[j]];
                double other = 1;
                for (auto& [m, cells] : pattern->takes)
                    if (m != pattern->minipod[j] && sets_.has(j, m)) other = std::min(other, prices[m]);
                loss_[j * n + pattern->minipod[j]] += rows * (other - paid);
                double* gain = &gain_[j * n];
                if (has_room)
                    for (int m = 0; m < n; ++m) gain[m] += rows * std::max(paid - prices[m], 0.0);
                else
                    for (auto& [m, cells] : pattern->takes) gain[m] += rows * std::max(paid - prices[m], 0.0);
            }
            work_.add(1.0 * ncolumns * (has_room ? n : task_.row_spread));
        });
        double scale = 0.02 * std::max(program_.value(), 1.0) / ncolumns;
        auto noisy = [&](double worth) {
            return worth * (0.5 + uniform(random_)) - scale * std::log1p(-uniform(random_));
        };
        std::array<int, 3> best{-1, -1, -1};
        double highest = -std::numeric_limits<double>::infinity();
        for (int j = 0; j < ncolumns; ++j) {
            double most = -std::numeric_limits<double>::infinity(), least = -most;
            int in = -1, out = -1;
            for (int m = 0; m < n; ++m) {
                double worth = noisy(sets_.has(j, m) ? loss_[j * n + m] : gain_[j * n + m]);
                if (sets_.has(j, m)) {
                    if (worth < least) {
                        least = worth;
                        out = m;
                    }
                } else if (worth > most) {
                    most = worth;
                    in = m;
                }
            }
            bool is_full = static_cast<int>(sets_.minipods_of(j).count()) >= task_.depth;
            double value = most - (is_full ? least : 0);
            if (in >= 0 && value > highest) {
                highest = value;
                best = {j, in, is_full ? out : -1};
            }
        }
        work_.add(20.0 * ncolumns * n);
        return best;
    }

    const Task& task_;
    Sets sets_;
    Program program_;
    Random& random_;
    Work& work_;
    std::vector<PatternPtr> pool_;
    std::set<std::vector<char>> tried_;
    std::vector<int> cells_;
    std::vector<double> gain_, loss_;
    double best_ = 0, heat_;
    int stalled_ = 0, since_tried_ = 0, ntried_ = 0;
    bool is_fresh_ = true;
};

}  // namespace spanfit
