// Decodes the words of plans, and checks each command as `submit` does. native/README.md has their
// layout.
#include "../include/text.h"
#include "contracts.h"
#include "environment.h"

namespace shardwise {

namespace {

Status bad(ErrorText* error, const char* what, size_t command) {
  return fail(error, Code::Invalid, "malformed plan: %s (command %zu)", what, command);
}

class PlanReader {
 public:
  PlanReader(Plan& plan, const double* words, int64_t count, ErrorText* error)
      : plan_(plan), in_(words, count), error_(error) {}

  Status read() {
    int64_t given, outputs, arena, commands;
    if (!in_.next(&given) || !in_.next(&outputs) || !in_.next(&arena) ||
        !in_.next(&plan_.num_draws) || !in_.next(&commands) || given < 0 || outputs < 0 ||
        arena < 0 || plan_.num_draws < 0 || commands < 0)
      return bad(error_, "header", 0);
    // A run passes them in the shared words, and each command has some words here.
    constexpr int64_t most = kMostWords;
    if (given > most || plan_.num_draws > most || 2 * given + plan_.num_draws > most ||
        outputs > most || commands > in_.left())
      return bad(error_, "counts", 0);
    plan_.num_given = static_cast<size_t>(given);
    plan_.num_outputs = static_cast<size_t>(outputs);
    plan_.bytes.assign(plan_.num_given, 0);
    for (int64_t i = 0; i < outputs; i++) {
      int64_t bytes;
      if (!in_.next(&bytes) || bytes < 0) return bad(error_, "bytes of an output", 0);
      plan_.bytes.push_back(bytes);
    }
    plan_.bytes.push_back(arena);
    for (int64_t i = 0; i < given; i++) {
      int64_t command;
      if (!in_.next(&command) || command < -1 || command >= commands)
        return bad(error_, "the command behind which a storage is freed", 0);
      plan_.freed_after.push_back(command);
    }
    plan_.slots.resize(plan_.bytes.size());
    plan_.items.assign(plan_.bytes.size(), 1);
    plan_.used.assign(plan_.bytes.size(), false);
    plan_.commands.resize(static_cast<size_t>(commands));
    for (Plan::Command& command : plan_.commands) {
      const Status status = read_command(command);
      if (!status.ok()) return status;
    }
    if (in_.left() > 0) return bad(error_, "words left over", plan_.commands.size());
    return link();
  }

 private:
  Status read_command(Plan::Command& command) {
    const size_t index = static_cast<size_t>(&command - plan_.commands.data());
    const Backend* backend = Devices::get().backend(plan_.device);
    int64_t kernel, inputs, outputs, params, draws;
    double cost;
    if (!in_.next(&kernel) || !in_.next(&inputs) || !in_.next(&outputs) || !in_.next(&params) ||
        !in_.next(&draws) || !in_.number(&cost))
      return bad(error_, "command", index);
    if (kernel < 0 || kernel >= backend->num_kernels) return bad(error_, "kernel id", index);
    if (inputs < 0 || outputs < 0 || inputs > kMaxOperands || outputs > kMaxOperands ||
        inputs + outputs > kMaxOperands || params < 0 || params > in_.left() || draws < 0)
      return bad(error_, "counts of a command", index);
    command.call.kernel = static_cast<int32_t>(kernel);
    command.call.num_inputs = static_cast<int32_t>(inputs);
    command.call.num_outputs = static_cast<int32_t>(outputs);
    command.call.num_params = static_cast<int32_t>(params);
    command.call.device = Devices::index(plan_.device);
    command.cost = stated_cost(cost);
    command.views = plan_.views.size();
    command.params = plan_.params.size();
    for (int64_t i = 0; i < inputs + outputs; i++) {
      // A command without outputs changes its inputs.
      const bool writes = outputs == 0 || i >= inputs;
      if (!read_operand(index, writes, i >= inputs)) return bad(error_, "operand", index);
    }
    command.operands_end = plan_.operands.size();
    command.uses_end = plan_.first_uses.size();
    command.writes_end = plan_.writes.size();
    return read_params(command, index, params, draws);
  }

  Status read_params(Plan::Command& command, size_t index, int64_t count, int64_t draws) {
    const int64_t padded = count > kMinParams ? count : kMinParams;
    plan_.params.resize(command.params + static_cast<size_t>(padded), 0.0);
    for (int64_t i = 0; i < count; i++)
      if (!in_.number(&plan_.params[command.params + static_cast<size_t>(i)]))
        return bad(error_, "parameters", index);
    for (int64_t i = 0; i < draws; i++) {
      int64_t param, word;
      if (!in_.next(&param) || !in_.next(&word) || param < 0 || param >= count || word < 0 ||
          word >= plan_.num_draws)
        return bad(error_, "random state", index);
      plan_.draws.push_back({command.params + static_cast<size_t>(param), word});
      command.rechecks = true;
    }
    return kOk;
  }

  bool read_operand(size_t command, bool writes, bool output) {
    TensorView view{};
    int64_t kind, dtype;
    double value;
    if (!in_.next(&kind) || !in_.number(&value) || !in_.next(&dtype) || dtype < 0 ||
        dtype >= kNumDTypes)
      return false;
    view.dtype = static_cast<DType>(dtype);
    if (kind == kImmediate || kind == kIndexView) {
      view.is_immediate = true;
      view.scalar = value;
      view.numel = 1;
      if (kind == kIndexView && read_layout(in_, view, plan_.dims) < 0) return false;
    } else {
      const int64_t extent = read_layout(in_, view, plan_.dims);
      const int64_t first = to_integer(value);
      if (kind < 0 || kind >= static_cast<int64_t>(plan_.bytes.size()) || extent < 0 || first < 0)
        return false;
      // an output whose elements share memory: the order of writes would decide
      if (output && view.numel > extent) return false;
      if (!reach(static_cast<size_t>(kind), first, extent, item_size(view.dtype))) return false;
      const auto slot = static_cast<size_t>(kind);
      if (slot < plan_.num_given && plan_.freed_after[slot] >= 0 &&
          static_cast<size_t>(plan_.freed_after[slot]) < command)
        return false;
      use(slot, extent > 0 ? first : 0, writes);
    }
    plan_.views.push_back(view);
    return true;
  }

  // Outputs and the arena have their sizes; given storages are compared when a run gives them.
  bool reach(size_t slot, int64_t first, int64_t extent, int64_t item) {
    if (first % item != 0) return false;
    if (item > plan_.items[slot]) plan_.items[slot] = item;
    if (extent == 0) return true;
    const double end = static_cast<double>(first) + static_cast<double>(extent) * item;
    if (end > 9e15) return false;
    const auto needed = static_cast<int64_t>(end);
    if (slot >= plan_.num_given) return needed <= plan_.bytes[slot];
    if (needed > plan_.bytes[slot]) plan_.bytes[slot] = needed;
    return true;
  }

  void use(size_t slot, int64_t first, bool writes) {
    plan_.operands.push_back({plan_.views.size(), slot, first});
    if (!plan_.used[slot]) plan_.first_uses.push_back(slot);
    plan_.used[slot] = true;
    if (writes) plan_.writes.push_back(slot);
  }

  void list_frees() {
    std::vector<size_t> counts(plan_.commands.size() + 1, 0);
    for (const int64_t command : plan_.freed_after)
      if (command >= 0) counts[static_cast<size_t>(command) + 1]++;
    for (size_t i = 1; i < counts.size(); i++) counts[i] += counts[i - 1];
    plan_.frees.resize(counts.back());
    for (size_t i = 0; i < plan_.commands.size(); i++) plan_.commands[i].frees_end = counts[i + 1];
    for (size_t slot = 0; slot < plan_.num_given; slot++)
      if (plan_.freed_after[slot] >= 0)
        plan_.frees[counts[static_cast<size_t>(plan_.freed_after[slot])]++] = slot;
  }

  // All lists are complete: what points into them stays valid.
  Status link() {
    list_frees();
    const Backend* backend = Devices::get().backend(plan_.device);
    size_t at = 0;
    plan_.dims.push_back(0);  // views without dims point behind the others, not to null
    for (TensorView& view : plan_.views) {
      const auto ndim = static_cast<size_t>(view.ndim);
      view.sizes = plan_.dims.data() + at;
      view.strides = plan_.dims.data() + at + ndim;
      at += 2 * ndim;
    }
    for (Plan::Command& command : plan_.commands) {
      KernelCall& call = command.call;
      call.tensors = plan_.views.data() + command.views;
      call.params = plan_.params.data() + command.params;
      for (int32_t i = 0; command.cost == 0 && i < call.num_inputs + call.num_outputs; i++)
        stated_ += call.tensors[i].numel;
      if (command.cost == 0) command.cost = stated_;
      stated_ = 0;
      command.rechecks = command.rechecks || has_indices(call.kernel);
      const Status status = check_contract(call, backend->kernels, error_);
      if (!status.ok()) return status;
    }
    return kOk;
  }

  Plan& plan_;
  WordReader in_;
  ErrorText* error_;
  int64_t stated_ = 0;
};

}  // namespace

Status read_plan(Plan& plan, const double* words, int64_t count, ErrorText* error) {
  return PlanReader(plan, words, count, error).read();
}

}  // namespace shardwise
