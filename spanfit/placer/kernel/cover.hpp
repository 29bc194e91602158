// Cheap rows: few minipods that serve every column at a low price.
#pragma once

#include <limits>

#include "sets.hpp"

namespace spanfit {

constexpr double kNever = 10.0;  // What a column costs that is not served.

// Minipods of a row, improved by adding one or exchanging one for another while that lowers the cost.
class Cover {
   public:
    Cover(const Sets& sets, const std::vector<double>& prices, const Task& task, Work& work)
        : sets_(sets), prices_(prices), task_(task), work_(work) {}

    // Starts from some minipods and returns the cost of the cheapest row found near them.
    double improve(std::vector<int> members) {
        members_ = std::move(members);
        serve();
        while (step()) serve();
        return cost_;
    }

    PatternPtr pattern() const {
        std::vector<int> minipod(task_.ncolumns);
        for (int j = 0; j < task_.ncolumns; ++j) {
            if (owner_[j] < 0) return nullptr;
            minipod[j] = owner_[j];
        }
        return std::make_shared<const Pattern>(std::move(minipod));
    }

   private:
    // Finds the cheapest and the second cheapest member for each column.
    void serve() {
        first_.assign(task_.ncolumns, kNever);
        second_.assign(task_.ncolumns, kNever);
        owner_.assign(task_.ncolumns, -1);
        for (int m : members_)
            for (int j : sets_.columns_of(m)) {
                double price = prices_[m];
                if (price < first_[j]) {
                    second_[j] = first_[j];
                    first_[j] = price;
                    owner_[j] = m;
                } else if (price < second_[j]) {
                    second_[j] = price;
                }
            }
        cost_ = 0;
        for (double each : first_) cost_ += each;
        work_.add(4.0 * task_.ncolumns);
    }

    bool step() {
        double lowest = cost_ - 1e-9;
        int out = -1, in = -1;
        if (static_cast<int>(members_.size()) < task_.row_spread)
            look(-1, lowest, out, in);
        else
            for (int place = 0; place < static_cast<int>(members_.size()); ++place) look(place, lowest, out, in);
        if (in < 0) return false;
        if (out < 0)
            members_.push_back(in);
        else
            members_[out] = in;
        return true;
    }

    // Looks for the minipod that serves best in place of a member, or beside all of them.
    void look(int place, double& lowest, int& out, int& in) {
        int leaving = place < 0 ? -1 : members_[place];
        served_ = first_;
        double cost = cost_;
        if (leaving >= 0)
            for (int j : sets_.columns_of(leaving))
                if (owner_[j] == leaving) {
                    served_[j] = second_[j];
                    cost += second_[j] - first_[j];
                }
        for (int m = 0; m < task_.nminipods; ++m) {
            double after = cost, price = prices_[m];
            for (int j : sets_.columns_of(m))
                if (served_[j] > price) after -= served_[j] - price;
            if (after < lowest && m != leaving) {
                lowest = after;
                out = place;
                in = m;
            }
        }
        work_.add(1.0 * task_.depth * task_.ncolumns + task_.nminipods);
    }

    const Sets& sets_;
    const std::vector<double>& prices_;
    const Task& task_;
    Work& work_;
    std::vector<double> first_, second_, served_;
    std::vector<int> owner_, members_;
    double cost_ = 0;
};

}  // namespace spanfit
