// Graphs of tenants that pass gates: a long graph gets gates between its nodes, so that it can be stopped inside.
//
// The program's graph is not touched. The interposer instantiates a clone of it with wait nodes before some kernels,
// also in its child graphs: between a kernel and what it waits for or, where that costs less, beside the last of that.
// It keeps the clone for as long as its exec, so that calls which name a node of the program's graph find the clone's
// node. A graph that cannot be cloned or gated (memory nodes, conditional nodes, nodes that the GPU updates) is
// instantiated as it is, gated as a whole, and counted if it is long.
//
// An exec has the gates that it was instantiated with, whatever class and rule its tenant has later: an update must
// have the same nodes. A gate that nobody closes lets everything pass.
#pragma once

#include "tenant/driver_calls.h"

namespace tenant {

struct KeptClone;
class Membership;

class GatedGraph {
 public:
    // A gated clone of the graph, or none.
    explicit GatedGraph(CUgraph graph);
    // The clone for an update of `exec`: gates at the same places as when it was instantiated.
    GatedGraph(CUgraph graph, CUgraphExec exec);
    // The same, for an update of what is inside one of its child graph nodes; none, where no gates are inside.
    GatedGraph(CUgraph child, CUgraphExec exec, CUgraphNode node);
    ~GatedGraph();
    GatedGraph(const GatedGraph&) = delete;
    GatedGraph& operator=(const GatedGraph&) = delete;

    bool exists() const { return clone_ != nullptr; }
    CUgraph clone() const { return clone_; }
    void keep_for(CUgraphExec exec);            // it was instantiated
    void note_ungated(CUgraphExec exec) const;  // the graph itself was instantiated
    // The program's node behind one of the clone's, for error reports.
    CUgraphNode original_of(CUgraphNode node) const;

 private:
    template <class Gate>
    void clone_if(Gate&& gate);  // and keeps the clone where `gate` returns true

    CUgraph graph_;
    CUgraph clone_ = nullptr;
    KeptClone* entry_ = nullptr;
    bool is_long_ = false;
};

// The node of an exec that a node of the program's graph stands for.
CUgraphNode node_in_exec(CUgraphExec exec, CUgraphNode node);
void forget_exec(CUgraphExec exec);

// Around the end of an exec, whose handle the driver may give away before it returns.
class EndingExec {
 public:
    explicit EndingExec(CUgraphExec exec);
    CUresult result(CUresult result);

 private:
    KeptClone* kept_;
};

// How many stand at a gate of this tenant's inside, on this GPU. A look at its streams begins with this.
int standing_graphs(const Membership& membership, int gpu);
// And ends with this, where all of them were empty: what had been launched before its exec ended is done.
void forget_what_was_in_flight(const Membership& membership, int gpu);
// The tenant whose gates an exec has; null: it has none.
Membership* gates_in(CUgraphExec exec);

}  // namespace tenant
