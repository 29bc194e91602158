// Whole rows for fixed sets of columns: an exchange of rows against cuts, and a flow that finds the cuts.
//
// Rows of the same minipods are alike, so their cells are a flow: from a column of the rows to any minipod that both
// may touch. There is one iff for all minipods S the rows force at most as many cells into S as S has nodes; a row
// forces a cell where all that its column and it may both touch lies in S. The cuts S that matter are few: rows are
// exchanged until they respect those known, then the flow either is there or names a cut that they do not.
#pragma once

#include <map>
#include <numeric>

#include "program.hpp"

namespace spanfit {

// Rows by their minipods, and how many cells each column of them takes from each minipod.
class Flow {
   public:
    Flow(const Task& task, const Sets& sets, Work& work)
        : task_(task), sets_(sets), work_(work), over_(task.nminipods) {
        for (int m = 0; m < task.nminipods; ++m) over_[m] = -task.capacity[m];
    }

    // Changes how many rows have these minipods; `kind` is the caller's number of them.
    void set(int kind, const std::vector<int>& members, int count) {
        Rows& rows = rows_[kind];
        if (rows.cells.empty()) {
            rows.members = members;
            rows.cells.assign(static_cast<std::size_t>(task_.ncolumns) * task_.nminipods, 0);
        }
        while (rows.count > count) shrink(rows);
        if (rows.count < count) grow(rows, count - rows.count);
        if (!rows.count) rows_.erase(kind);
    }

    // Moves cells until no minipod gives more than it has; where that fails, `reached` tells a cut.
    bool drain() {
        while (std::any_of(over_.begin(), over_.end(), [](int each) { return each > 0; })) {
            int last = find_path();
            if (last < 0) return false;
            shift(last);
        }
        return true;
    }

    const std::vector<char>& reached() const { return reached_; }

    double fullness(int m) const { return 1 + 1.0 * over_[m] / task_.capacity[m]; }

    // The minipod of each cell, row by row.
    std::vector<int> cells() const {
        std::vector<int> found;
        found.reserve(static_cast<std::size_t>(task_.nrows) * task_.ncolumns);
        for (auto [kind, rows] : rows_)
            for (int row = 0; row < rows.count; ++row)
                for (int j = 0; j < task_.ncolumns; ++j) {
                    int* left = &rows.cells[j * task_.nminipods];
                    int m = 0;
                    while (!left[m]) ++m;
                    --left[m];
                    found.push_back(m);
                }
        return found;
    }

   private:
    struct Rows {
        std::vector<int> members;
        std::vector<int> cells;  // by column and minipod
        int count = 0;
    };

    // Adds rows, the cells of a column to the member that is fullest least.
    void grow(Rows& rows, int count) {
        rows.count += count;
        for (int j = 0; j < task_.ncolumns; ++j) {
            int least = -1;
            for (int m : rows.members)
                if (sets_.has(j, m) && (least < 0 || over_[m] < over_[least])) least = m;
            rows.cells[j * task_.nminipods + least] += count;
            over_[least] += count;
        }
    }

    // Takes a row away, its cells from the minipods that lack most.
    void shrink(Rows& rows) {
        --rows.count;
        for (int j = 0; j < task_.ncolumns; ++j) {
            int most = -1;
            for (int m : rows.members)
                if (rows.cells[j * task_.nminipods + m] > 0 && (most < 0 || over_[m] > over_[most])) most = m;
            --rows.cells[j * task_.nminipods + most];
            --over_[most];
        }
    }

    // Finds the shortest way from a minipod that lacks cells to one with room, and returns its end, -1 if none.
    int find_path() {
        int n = task_.nminipods;
        links_.assign(n * n, 0);
        for (auto& [kind, rows] : rows_) {
            for (int j = 0; j < task_.ncolumns; ++j)
                for (int from : rows.members)
                    if (rows.cells[j * n + from] > 0)
                        for (int to : rows.members)
                            if (sets_.has(j, to)) links_[from * n + to] = 1;
            work_.add(4.0 * task_.ncolumns * rows.members.size());
        }
        work_.add(n * n);
        reached_.assign(n, 0);
        before_.assign(n, -1);
        std::vector<int> front;
        for (int m = 0; m < n; ++m)
            if (over_[m] > 0) {
                reached_[m] = 1;
                front.push_back(m);
            }
        while (!front.empty()) {
            std::vector<int> following;
            int roomiest = -1;
            for (int from : front)
                for (int to = 0; to < n; ++to)
                    if (links_[from * n + to] && !reached_[to]) {
                        reached_[to] = 1;
                        before_[to] = from;
                        following.push_back(to);
                        if (over_[to] < 0 && (roomiest < 0 || over_[to] < over_[roomiest])) roomiest = to;
                    }
            if (roomiest >= 0) return roomiest;
            front = std::move(following);
        }
        return -1;
    }

    void shift(int last) {
        struct Move {
            Rows* rows;
            int column, from, to;
        };
        int n = task_.nminipods, amount = -over_[last], first = last;
        std::vector<Move> moves;
        for (int to = last; before_[to] >= 0; to = before_[to]) {
            int from = before_[to], most = 0;
            Move best{};
            for (auto& [kind, rows] : rows_) {
                if (std::find(rows.members.begin(), rows.members.end(), to) == rows.members.end()) continue;
                for (int j : sets_.columns_of(to))
                    if (rows.cells[j * n + from] > most) {
                        most = rows.cells[j * n + from];
                        best = {&rows, j, from, to};
                    }
            }
            moves.push_back(best);
            amount = std::min(amount, most);
            first = from;
            work_.add(3.0 * rows_.size());
        }
        amount = std::min(amount, over_[first]);
        for (auto& move : moves) {
            move.rows->cells[move.column * n + move.from] -= amount;
            move.rows->cells[move.column * n + move.to] += amount;
        }
        over_[first] -= amount;
        over_[last] += amount;
    }

    const Task& task_;
    const Sets& sets_;
    Work& work_;
    std::map<int, Rows> rows_;
    std::vector<int> over_, before_;
    std::vector<char> reached_, links_;
};

class WholeRows {
   public:
    WholeRows(const Task& task, const Sets& sets, Random& random, Work& work)
        : task_(task), sets_(sets), random_(random), work_(work), flow_(task, sets, work) {}

    // Returns whether rows near the answer of a program were made whole; `exchanges` are tried for each cut.
    bool make(const Program& program, const std::vector<PatternPtr>& pool, int exchanges) {
        worth_ = program.prices();
        dearest_ = 1 + program.value() - task_.nrows + 1e-6;
        start(program);
        prices_.assign(task_.nminipods, 0);
        for (int round = 0; round < kByPrice; ++round) {
            if (flows()) return true;
            add_cut();
            if (!exchange_by_price()) break;
        }
        for (auto& each : pool)
            if (each->fits(sets_)) add_kind(members_of(*each));
        draw_kinds();
        while (ncuts_ < kCuts && exchange_by_cuts(exchanges)) {
            if (flows()) return true;
            add_cut();
            if (PatternPtr cheapest = cheapest_at_prices()) add_kind(members_of(*cheapest));
        }
        return false;
    }

    std::vector<int> cells() const { return flow_.cells(); }

   private:
    static constexpr int kCuts = 256, kKinds = 300;  // at most
    static constexpr int kDraws = 3000;              // of kinds that may be too dear
    static constexpr int kByPrice = 80;              // exchanges before all known cuts are looked at
    static constexpr double kMemory = 0.5;           // of older cuts in the prices
    static constexpr double kHeat = 0.3;             // of the exchanges, in cells
    static constexpr double kFullness = 1e-3;        // price of a minipod that is full, so that ties fill others

    int nkinds() const { return static_cast<int>(members_.size()); }

    // Takes whole rows near those of the program.
    void start(const Program& program) {
        std::vector<int> kinds;
        std::vector<double> shares;
        program.each_used([&](const PatternPtr& pattern, double rows) {
            kinds.push_back(kind_of(members_of(*pattern)));
            shares.push_back(rows);
        });
        double scale = std::min(1.0, task_.nrows / program.value());
        std::vector<int> whole;
        for (double& share : shares) whole.push_back(static_cast<int>((share *= scale) + 1e-6));
        std::vector<int> order(shares.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](int one, int other) { return whole[one] - shares[one] < whole[other] - shares[other]; });
        int missing = task_.nrows - std::accumulate(whole.begin(), whole.end(), 0);
        for (std::size_t i = 0; missing > 0; i = (i + 1) % order.size(), --missing) ++whole[order[i]];
        for (std::size_t i = 0; i < kinds.size(); ++i) count_[kinds[i]] += whole[i];
    }

    static std::vector<int> members_of(const Pattern& pattern) {
        std::vector<int> members;
        for (auto& [m, cells] : pattern.takes) members.push_back(m);
        return members;
    }

    int kind_of(std::vector<int> members) {
        std::sort(members.begin(), members.end());
        auto [found, is_new] = places_.try_emplace(members, nkinds());
        if (is_new) {
            count_.push_back(0);
            given_.push_back(0);
            mask_.emplace_back();
            for (int m : members) mask_.back().set(m);
            members_.push_back(std::move(members));
            forced_.resize(static_cast<std::size_t>(nkinds()) * kCuts, 0);
            for (int cut = 0; cut < ncuts_; ++cut) forced_[found->second * kCuts + cut] = force(found->second, cut);
            work_.add(1.5 * (ncuts_ + 1) * task_.ncolumns + 300);
        }
        return found->second;
    }

    // Adds kinds that differ from others in one minipod.
    void draw_kinds() {
        for (int draw = 0; draw < kDraws && nkinds() < kKinds; ++draw) {
            std::vector<int> members = members_[below(random_, nkinds())];
            int other = below(random_, task_.nminipods);
            if (std::find(members.begin(), members.end(), other) != members.end()) continue;
            if (static_cast<int>(members.size()) == task_.row_spread)
                members[below(random_, static_cast<int>(members.size()))] = other;
            else
                members.push_back(other);
            add_kind(std::move(members));
        }
    }

    // Adds a kind unless a single such row would cost more than is spare.
    void add_kind(std::vector<int> members) {
        if (cost(members, worth_) <= dearest_) kind_of(std::move(members));
    }

    // Returns whether the flow of the rows is there.
    bool flows() {
        for (int kind = 0; kind < nkinds(); ++kind)
            if (count_[kind] != given_[kind]) flow_.set(kind, members_[kind], given_[kind] = count_[kind]);
        return flow_.drain();
    }

    // Exchanges the row that forces most into recent cuts for one that forces least, if that is less.
    bool exchange_by_price() {
        PatternPtr cheapest = cheapest_at_prices();
        if (!cheapest) return false;
        double highest = cheapest->cost(prices_);
        int dearest = -1;
        for (int kind = 0; kind < nkinds(); ++kind)
            if (count_[kind] && cost(members_[kind], prices_) > highest) {
                highest = cost(members_[kind], prices_);
                dearest = kind;
            }
        if (dearest < 0) return false;
        int into = kind_of(members_of(*cheapest));
        move(dearest, into);
        for (int cut = 0; cut < ncuts_; ++cut)
            over_[cut] += forced_[into * kCuts + cut] - forced_[dearest * kCuts + cut];
        return true;
    }

    void move(int from, int to) {
        --count_[from];
        ++count_[to];
    }

    // The row that forces least into recent cuts, into minipods that are less full where it makes no difference.
    PatternPtr cheapest_at_prices() {
        std::vector<double> prices = prices_;
        for (int m = 0; m < task_.nminipods; ++m) prices[m] += kFullness * flow_.fullness(m);
        Cover cover(sets_, prices, task_, work_);
        cover.improve({});
        return cover.pattern();
    }

    double cost(const std::vector<int>& members, const std::vector<double>& prices) const {
        std::vector<double> least(task_.ncolumns, kNever);
        for (int m : members)
            for (int j : sets_.columns_of(m)) least[j] = std::min(least[j], prices[m]);
        work_.add(1.5 * task_.ncolumns * members.size());
        return std::accumulate(least.begin(), least.end(), 0.0);
    }

    // The cells that a row forces into a cut: those of columns that it touches nowhere else.
    int force(int kind, int cut) const {
        Minipods outside = mask_[kind] & ~inside_[cut];
        int count = 0;
        for (int j = 0; j < task_.ncolumns; ++j) count += (sets_.minipods_of(j) & outside).none();
        return count;
    }

    // Adds the cut that the flow names.
    void add_cut() {
        inside_.emplace_back();
        int cut = ncuts_++, over = 0;
        for (int m = 0; m < task_.nminipods; ++m) {
            bool is_inside = flow_.reached()[m];
            prices_[m] = kMemory * prices_[m] + (1 - kMemory) * is_inside;
            if (!is_inside) continue;
            inside_[cut].set(m);
            over -= task_.capacity[m];
        }
        for (int kind = 0; kind < nkinds(); ++kind) {
            int cells = forced_[kind * kCuts + cut] = force(kind, cut);
            over += cells * count_[kind];
        }
        over_.push_back(over);
        work_.add(1.5 * nkinds() * task_.ncolumns);
    }

    // Exchanges rows, mostly for the better, until no known cut is forced over its nodes.
    bool exchange_by_cuts(int most) {
        std::vector<int> used;
        for (int kind = 0; kind < nkinds(); ++kind)
            if (count_[kind]) used.push_back(kind);
        int violation = 0;
        for (int each : over_) violation += std::max(each, 0);
        for (int step = 0; step < most; ++step) {
            if (!violation) return true;
            int place = below(random_, static_cast<int>(used.size()));
            int from = used[place], to = below(random_, nkinds());
            if (from == to) continue;
            work_.add(10 + 0.5 * ncuts_);
            const int *less = &forced_[from * kCuts], *more = &forced_[to * kCuts];
            int after = 0;
            for (int cut = 0; cut < ncuts_; ++cut) after += std::max(over_[cut] + more[cut] - less[cut], 0);
            if (after > violation && uniform(random_) >= std::exp((violation - after) / kHeat)) continue;
            for (int cut = 0; cut < ncuts_; ++cut) over_[cut] += more[cut] - less[cut];
            violation = after;
            if (!count_[to]) used.push_back(to);
            move(from, to);
            if (!count_[from]) {
                used[place] = used.back();
                used.pop_back();
            }
        }
        return !violation;
    }

    const Task& task_;
    const Sets& sets_;
    Random& random_;
    Work& work_;
    Flow flow_;
    std::map<std::vector<int>, int> places_;
    std::vector<std::vector<int>> members_;
    std::vector<int> count_, given_, forced_, over_;
    std::vector<Minipods> mask_, inside_;
    std::vector<double> worth_, prices_;
    double dearest_ = 0;
    int ncuts_ = 0;
};

}  // namespace spanfit
