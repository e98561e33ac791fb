// Plans: the commands of a graph, decoded and checked once, and run by one call with the memory of
// that time. native/README.md has the layout of the words.
#include <algorithm>

#include "../include/text.h"
#include "command.h"
#include "contracts.h"

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
    bool draws = false;
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

namespace {

constexpr int64_t kMostPlanWords = int64_t{1} << 28;

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
    constexpr int64_t most = kWordBytes / 8;
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
      command.draws = true;
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

// Runs inside a collection: must not call JavaScript.
void on_plan_collected(node_api_basic_env, void* data, void* hint) {
  static_cast<Environment*>(hint)->plans.erase(reinterpret_cast<int64_t>(data));
}

napi_value create_plan(napi_env env, napi_callback_info info) {
  int64_t args[2];
  napi_value raw[2] = {};
  if (!read_integers(env, info, 2, args, raw, 1)) return nullptr;
  Environment& state = state_of(env);
  bool typed = false;
  void* data = nullptr;
  size_t length = 0, offset = 0;
  napi_typedarray_type type = napi_int8_array;
  napi_value buffer = nullptr;
  if (napi_is_typedarray(env, raw[0], &typed) == napi_ok && typed)
    napi_get_typedarray_info(env, raw[0], &type, &length, &data, &buffer, &offset);
  if (type != napi_float64_array || static_cast<int64_t>(length) > kMostPlanWords)
    return fail_call(env, Code::Invalid, "malformed plan: expected a Float64Array of words");
  if (!Devices::get().valid(args[1]))
    return fail_call(env, Code::Device, "there is no such device");
  auto plan = std::make_shared<Plan>();
  plan->device = static_cast<int32_t>(args[1]);
  ErrorText error;
  const Status status =
      PlanReader(*plan, static_cast<const double*>(data), static_cast<int64_t>(length), &error)
          .read();
  if (!status.ok()) return fail_call(env, status.code, error);
  const int64_t id = state.next_plan++;
  napi_value token = state.make_collectable(reinterpret_cast<void*>(id), on_plan_collected);
  if (!token) return nullptr;
  state.plans[id] = std::move(plan);
  state.words[0] = static_cast<double>(id);
  return token;
}

// Whether a storage that the run frees is given twice.
bool frees_shared(Plan& plan) {
  if (plan.frees.empty()) return false;
  plan.handles.clear();
  for (size_t i = 0; i < plan.num_given; i++)
    plan.handles.emplace_back(plan.slots[i].handle, plan.freed_after[i] >= 0);
  std::sort(plan.handles.begin(), plan.handles.end());
  for (size_t i = 1; i < plan.handles.size(); i++)
    if (plan.handles[i].second && plan.handles[i].first == plan.handles[i - 1].first) return true;
  return false;
}

// Resolves the given storages. False if a command needs more than their memory as it is: one was
// freed, is too small, has no value, belongs to an ArrayBuffer or another device.
bool bind_given(Environment& state, Plan& plan) {
  for (size_t i = 0; i < plan.num_given; i++) {
    const int64_t handle = to_integer(state.words[2 * i]);
    StorageEntry* entry = state.storages.find(handle);
    const int64_t first = to_integer(state.words[2 * i + 1]);
    if (!entry || first < 0 || entry->adopted || entry->no_value || entry->device != plan.device)
      return false;
    const bool reached = plan.bytes[i] > 0;
    if (first % plan.items[i] != 0) return false;
    if (reached && first > entry->bytes - plan.bytes[i]) return false;
    plan.slots[i] = {handle, entry, reached ? entry->data + first : entry->data};
  }
  return !frees_shared(plan);
}

void release_from(Environment& state, Plan& plan, size_t first) {
  for (size_t i = first; i < plan.slots.size(); i++) {
    if (plan.slots[i].handle) state.release(plan.slots[i].handle, false);
    plan.slots[i] = {};
  }
}

Status allocate_slot(Environment& state, Plan& plan, Stream& stream, size_t i, ErrorText* error) {
  Plan::Slot& slot = plan.slots[i];
  const Status status = allocate_storage(state, stream, plan.bytes[i], &slot.handle, error);
  if (!status.ok()) {
    slot.handle = 0;
    return status;
  }
  slot.entry = state.storages.find(slot.handle);
  slot.data = slot.entry->data;
  return kOk;
}

// The arena, and outputs that no command uses.
Status allocate_first(Environment& state, Plan& plan, Stream& stream, ErrorText* error) {
  const size_t arena = plan.slots.size() - 1;
  for (size_t i = plan.num_given; i < plan.slots.size(); i++) {
    const bool needed = i == arena ? plan.bytes[i] > 0 : !plan.used[i];
    if (!needed) continue;
    const Status status = allocate_slot(state, plan, stream, i, error);
    if (!status.ok()) return status;
  }
  return kOk;
}

// Makes ready what a command uses first: outputs, and the views.
Status prepare(Environment& state, Plan& plan, const Plan::Command& command, Stream& stream,
               ErrorText* error) {
  Plan::Progress& at = plan.progress;
  for (size_t i = at.use; i < command.uses_end; i++) {
    const size_t slot = plan.first_uses[i];
    if (slot < plan.num_given || slot == plan.slots.size() - 1 || plan.slots[slot].handle) continue;
    const Status status = allocate_slot(state, plan, stream, slot, error);
    if (!status.ok()) return status;
  }
  for (; at.operand < command.operands_end; at.operand++) {
    const Plan::Operand& operand = plan.operands[at.operand];
    char* data = plan.slots[operand.slot].data;
    plan.views[operand.view].data = operand.first > 0 ? data + operand.first : data;
  }
  // Not before its first use: the stream then waits for other streams that wrote the storage.
  for (; at.use < command.uses_end; at.use++)
    if (StorageEntry* entry = plan.slots[plan.first_uses[at.use]].entry)
      state.touch(*entry, stream);
  return kOk;
}

void settle_command(Environment& state, Plan& plan, const Plan::Command& command, Stream& stream) {
  Plan::Progress& at = plan.progress;
  for (; at.write < command.writes_end; at.write++)
    if (StorageEntry* entry = plan.slots[plan.writes[at.write]].entry)
      state.write(*entry, stream, false);
  for (; at.free < command.frees_end; at.free++) {
    Plan::Slot& slot = plan.slots[plan.frees[at.free]];
    if (plan.used[plan.frees[at.free]]) slot.entry->last_sequence = stream.claimed();
    state.release(slot.handle, false);
    slot = {};
  }
}

// Runs or enqueues all commands, from the one on that the run has come to.
Status run_commands(Environment& state, Plan& plan, Stream& stream, ErrorText* error) {
  Plan::Progress& at = plan.progress;
  Status status = kOk;
  for (; at.command < plan.commands.size() && status.ok(); at.command++) {
    Plan::Command& command = plan.commands[at.command];
    status = prepare(state, plan, command, stream, error);
    if (!status.ok()) {
      at.stopped = status.code == Code::OutOfMemory;
      break;
    }
    // Its parameters have changed since they were checked.
    if (command.draws) status = check_contract(command.call, stream.backend()->kernels, error);
    if (status.ok())
      status = runs_inline(stream, command.cost) ? run_inline(stream, command.call, error)
                                                 : stream.enqueue_kernel(command.call, error);
    if (!status.ok()) break;
    settle_command(state, plan, command, stream);
    if (state.blocking) status = state.synchronize(stream, error);
    if (!status.ok()) break;
  }
  const uint64_t sequence = stream.claimed();
  for (size_t i = 0; i < at.use; i++)
    if (StorageEntry* entry = plan.slots[plan.first_uses[i]].entry) entry->last_sequence = sequence;
  return status;
}

// Begins a run. False if the given storages do not fit.
bool begin_run(Environment& state, Plan& plan) {
  release_from(state, plan, plan.num_given);  // of a run that stopped and did not go on
  plan.progress = {};
  if (!bind_given(state, plan)) return false;
  const double* words = state.words + 2 * plan.num_given;
  for (const Plan::Draw& draw : plan.draws) plan.params[draw.param] = words[draw.word];
  return true;
}

napi_value output_tokens(Environment& state, const Plan& plan) {
  napi_env env = state.env;
  const Plan::Slot* outputs = plan.slots.data() + plan.num_given;
  if (plan.num_outputs == 1) return make_token(state, outputs[0].handle, *outputs[0].entry);
  napi_value result = nullptr;
  napi_create_array_with_length(env, plan.num_outputs, &result);
  for (size_t i = 0; i < plan.num_outputs; i++)
    napi_set_element(env, result, static_cast<uint32_t>(i),
                     make_token(state, outputs[i].handle, *outputs[i].entry));
  return result;
}

// Whether all memory is there that a run which stopped goes on with.
bool holds_all(Environment& state, const Plan& plan) {
  return std::all_of(plan.slots.begin(), plan.slots.end(), [&](const Plan::Slot& slot) {
    return slot.handle == 0 || state.storages.find(slot.handle) == slot.entry;
  });
}

// Fails with the index of the command in the first word, or -1 if none has run.
napi_value run_words(Environment& state, int64_t id, int64_t stream_id, bool with_tokens,
                     bool goes_on) {
  napi_env env = state.env;
  const auto found = state.plans.find(id);
  Stream* stream = state.stream(stream_id);
  if (found == state.plans.end() || !stream)
    return fail_call(env, Code::Closed, "runPlan: there is no such plan or stream");
  Plan& plan = *found->second;
  if (stream->device_code() != plan.device)
    return fail_call(env, Code::Device, "runPlan: the stream is of another device than the plan");
  if (goes_on && (!plan.progress.stopped || !holds_all(state, plan)))
    return fail_call(env, Code::Invalid, "runPlan: the plan has no run that can go on");
  state.settle_accounts();
  ErrorText error;
  Status status = kOk;
  if (goes_on) {
    plan.progress.stopped = false;
  } else {
    if (!begin_run(state, plan)) return boolean_value(env, false);
    status = allocate_first(state, plan, *stream, &error);
  }
  if (status.ok()) status = run_commands(state, plan, *stream, &error);
  if (!status.ok()) {
    const size_t failed = plan.progress.command;
    const bool stopped = plan.progress.stopped && failed > 0 && !goes_on;
    plan.progress.stopped = stopped;
    if (!stopped) release_from(state, plan, plan.num_given);
    const bool none_ran = failed == 0 && status.code == Code::OutOfMemory;
    state.words[0] = none_ran ? -1 : static_cast<double>(failed);
    return fail_call(env, status.code, error);
  }
  release_from(state, plan, plan.num_given + plan.num_outputs);
  napi_value tokens = with_tokens && plan.num_outputs > 0 ? output_tokens(state, plan) : nullptr;
  for (size_t i = 0; i < plan.num_outputs; i++) {
    Plan::Slot& slot = plan.slots[plan.num_given + i];
    state.words[i] = static_cast<double>(slot.handle);
    slot = {};
  }
  return tokens;
}

napi_value run_plan(napi_env env, napi_callback_info info) {
  napi_value raw[4] = {};
  size_t argc = 4;
  void* data;
  napi_get_cb_info(env, info, &argc, raw, nullptr, &data);
  double plan = 0, stream = 0;
  bool with_tokens = false, goes_on = false;
  napi_get_value_double(env, raw[0], &plan);
  napi_get_value_double(env, raw[1], &stream);
  napi_get_value_bool(env, raw[2], &with_tokens);
  napi_get_value_bool(env, raw[3], &goes_on);
  Environment& state = *static_cast<Environment*>(data);
  return answer(env, state.failure,
                run_words(state, to_integer(plan), to_integer(stream), with_tokens, goes_on));
}

}  // namespace

void export_plans(Environment& state, napi_value exports) {
  export_function<create_plan>(state.env, exports, "createPlan");
  export_callback(state.env, exports, "runPlan", run_plan, &state);
}

}  // namespace shardwise
