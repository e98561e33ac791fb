// A plan of commands: what plan_reader.cc makes of its words, and plan.cc runs.
#pragma once
#include <utility>
#include <vector>

#include "../include/kernel_call.h"
#include "../runtime/storage_table.h"

namespace shardwise {

// Its views refer to memory by slots: the given storages, then the outputs, which each run allocates
// before their first use, then the arena: one block with all other results, which lives as long as
// the run. Some given storages are freed behind their last use.
struct Plan {
  // A view starts at byte `first` of its slot.
  struct Operand {
    size_t view;
    size_t slot;
    int64_t first;
  };
  struct Command {
    KernelCall call{};
    int64_t cost = 0;
    size_t views = 0, params = 0;  // its first ones
    size_t operands_end = 0, uses_end = 0, writes_end = 0, frees_end = 0;
    bool rechecks = false;  // in each run: parameters change, or addresses matter
  };
  // A parameter that each run gets as a word.
  struct Draw {
    size_t param;
    int64_t word;
  };

  int32_t device = 0;
  size_t num_given = 0, num_outputs = 0;
  int64_t num_draws = 0;
  std::vector<int64_t> bytes;  // by slot: of a given storage what the commands reach
  std::vector<int64_t> items;  // by slot: the size of the largest element, to which it is aligned
  std::vector<Command> commands;
  std::vector<TensorView> views;
  std::vector<int64_t> dims;
  std::vector<double> params;
  std::vector<Operand> operands;
  std::vector<Draw> draws;
  // Slots by command: those that it is the first to use, and those that it writes.
  std::vector<size_t> first_uses, writes;
  std::vector<size_t> frees;         // given slots by the command behind which they are freed
  std::vector<int64_t> freed_after;  // that command by given slot; -1 for none
  std::vector<bool> used;            // by slot: whether a command uses it

  struct Slot {
    int64_t handle = 0;
    StorageEntry* entry = nullptr;
    char* data = nullptr;
  };
  std::vector<Slot> slots;  // of the present run
  // How far it has come. It stops before a command whose outputs find no memory, so that it can go
  // on after a garbage collection.
  struct Progress {
    size_t command = 0, operand = 0, use = 0, write = 0, free = 0;
    bool stopped = false;
  };
  Progress progress;
  std::vector<std::pair<int64_t, bool>> handles;  // of given slots, and whether one is freed
};

// Decodes and checks the words of a plan for its device.
Status read_plan(Plan& plan, const double* words, int64_t count, ErrorText* error);

}  // namespace shardwise
