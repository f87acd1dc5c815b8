// Graphs of tenants that pass gates: a long one gets gates between its nodes, so that it can be stopped inside.
//
// The program's graph is not touched. What is instantiated is a clone of it with wait nodes in front of some kernels;
// the clone is kept for as long as its exec, so that calls which name a node of the program's graph find the right one.
// Whatever cannot be cloned or gated (memory nodes, device launch) is instantiated as it is, and gated as a whole.
#pragma once

#include "tenant/driver_calls.h"

namespace tenant {

class Membership;

class GatedGraph {
 public:
    // A gated clone of the graph, or none.
    explicit GatedGraph(CUgraph graph);
    // The clone for an update of `exec`: gates at the same places as when it was instantiated.
    GatedGraph(CUgraph graph, CUgraphExec exec);
    ~GatedGraph();
    GatedGraph(const GatedGraph&) = delete;
    GatedGraph& operator=(const GatedGraph&) = delete;

    bool exists() const { return clone_ != nullptr; }
    CUgraph clone() const { return clone_; }
    void keep_for(CUgraphExec exec);  // it was instantiated
    // The program's node behind one of the clone's, for error reports.
    CUgraphNode original_of(CUgraphNode node) const;

 private:
    void make(const uint64_t* places, uint32_t place_count);

    CUgraph graph_;
    CUgraph clone_ = nullptr;
    uint64_t* places_ = nullptr;  // numbers of the nodes that got a gate, in the order of cuGraphGetNodes
    uint32_t place_count_ = 0;
};

// The node of an exec that a node of the program's graph stands for.
CUgraphNode node_in_exec(CUgraphExec exec, CUgraphNode node);
void forget_exec(CUgraphExec exec);
void forget_execs_in_child();

}  // namespace tenant
