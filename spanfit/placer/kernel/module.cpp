// What Python sees of the search by columns.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "search.hpp"

namespace py = pybind11;
using namespace spanfit;

namespace {

template <typename T>
using Array = py::array_t<T, py::array::c_style | py::array::forcecast>;

Sets sets_of(const Array<bool>& allowed) {
    Sets sets(static_cast<int>(allowed.shape(0)), static_cast<int>(allowed.shape(1)));
    for (int j = 0; j < allowed.shape(0); ++j)
        for (int m = 0; m < allowed.shape(1); ++m)
            if (*allowed.data(j, m)) sets.add(j, m);
    return sets;
}

Array<std::int64_t> lines(const std::vector<int>& cells, py::ssize_t ncolumns) {
    Array<std::int64_t> found({static_cast<py::ssize_t>(cells.size()) / ncolumns, ncolumns});
    std::copy(cells.begin(), cells.end(), found.mutable_data());
    return found;
}

// The values of the linear programs of one sets after the other, each from the last one's basis.
std::vector<double> most_rows(std::vector<int> capacity, int row_spread, const std::vector<Array<bool>>& sets) {
    std::vector<double> values;
    if (sets.empty()) return values;
    int ncolumns = static_cast<int>(sets[0].shape(0)), nminipods = static_cast<int>(capacity.size());
    Task task{1, ncolumns, nminipods, nminipods, row_spread, std::move(capacity)};
    Program program(task);
    Work work;
    std::vector<PatternPtr> pool;
    for (auto& allowed : sets) {
        if (allowed.ndim() != 2 || allowed.shape(0) != ncolumns || allowed.shape(1) != nminipods)
            throw py::value_error("sets have one line for each column and one entry for each minipod");
        program.solve(sets_of(allowed), pool, 0, work);
        values.push_back(program.value());
    }
    return values;
}

}  // namespace

PYBIND11_MODULE(_kernel, module) {
    module.attr("MOST_MINIPODS") = kMostMinipods;
    module.def("most_rows", &most_rows, py::kw_only(), py::arg("capacity"), py::arg("row_spread"), py::arg("sets"));
    py::class_<Search>(module, "Search")
        .def(py::init([](std::vector<int> capacity, int nrows, int ncolumns, int depth, int row_spread,
                         std::uint64_t seed) {
                 if (capacity.empty() || std::min({nrows, ncolumns, depth, row_spread}) < 1 ||
                     *std::min_element(capacity.begin(), capacity.end()) < 1)
                     throw py::value_error("a search needs rows, columns, spreads and minipods with free nodes");
                 if (capacity.size() > kMostMinipods)
                     throw py::value_error("a search holds at most " + std::to_string(kMostMinipods) + " minipods");
                 int nminipods = static_cast<int>(capacity.size());
                 return Search({nrows, ncolumns, nminipods, depth, row_spread, std::move(capacity)}, seed);
             }),
             py::kw_only(), py::arg("capacity"), py::arg("nrows"), py::arg("ncolumns"), py::arg("depth"),
             py::arg("row_spread"), py::arg("seed"))
        .def("run", &Search::run, py::call_guard<py::gil_scoped_release>())
        .def_property_readonly("work_done", &Search::done)
        .def_property_readonly("best", &Search::best)
        .def_property_readonly("rows", [](const Search& search) {
            return lines(search.cells(), search.task().ncolumns);
        });
}
