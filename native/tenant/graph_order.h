// The nodes of a graph, as the driver lists them.
#pragma once

#include <cstdlib>

#include "tenant/driver_calls.h"

namespace tenant {

// Memory of plain things that may not be had: then its size is 0.
template <class T>
class Array {
 public:
    explicit Array(size_t size) : items_(static_cast<T*>(calloc(size, sizeof(T)))), size_(items_ ? size : 0) {}
    ~Array() { free(items_); }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;

    T* data() { return items_; }
    size_t size() const { return size_; }
    T& operator[](size_t i) { return items_[i]; }

 private:
    T* items_;
    size_t size_;
};

// A graph's own nodes, in the order in which they were added; none where the driver does not tell.
class Nodes {
 public:
    explicit Nodes(CUgraph graph);

    size_t count() const { return count_; }
    CUgraphNode operator[](size_t i) { return nodes_[i]; }

 private:
    Array<CUgraphNode> nodes_;
    size_t count_;
};

// The same, each after all that it waits for, in an order that any graph has which an exec of this one can be updated
// from. The driver pairs the two graphs' exit nodes in the order in which they were added, and then what paired nodes
// wait for in the order of their edges; when the other nodes were added does not matter to it.
class NodesInOrder {
 public:
    explicit NodesInOrder(CUgraph graph);

    size_t count() const { return count_; }
    CUgraphNode operator[](size_t i) { return order_[i]; }

 private:
    Array<CUgraphNode> order_;
    size_t count_ = 0;
};

}  // namespace tenant
