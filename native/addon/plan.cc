// Plans: the commands of a graph, decoded and checked once, and run by one call with the memory of
// that time. native/README.md has the layout of the words.
#include "../include/text.h"
#include "command.h"
#include "contracts.h"

namespace shardwise {

// Its views refer to memory by slots: the given storages, then the outputs, which each run
// allocates, then the arena: one block with all other results, which lives as long as the run.
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
    size_t uses_end = 0, writes_end = 0;
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

  struct Slot {
    int64_t handle = 0;
    StorageEntry* entry = nullptr;
    char* data = nullptr;
  };
  std::vector<Slot> slots;  // of the present run
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
    plan_.slots.resize(plan_.bytes.size());
    plan_.items.assign(plan_.bytes.size(), 1);
    used_.assign(plan_.bytes.size(), false);
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
      if (!read_operand(writes, i >= inputs)) return bad(error_, "operand", index);
    }
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

  bool read_operand(bool writes, bool output) {
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
      use(static_cast<size_t>(kind), extent > 0 ? first : 0, writes);
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
    if (!used_[slot]) plan_.first_uses.push_back(slot);
    used_[slot] = true;
    if (writes) plan_.writes.push_back(slot);
  }

  // All lists are complete: what points into them stays valid.
  Status link() {
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
  std::vector<bool> used_;
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

// Resolves the given storages. False if a command needs more than their memory as it is: one was
// freed, is too small, has no value, belongs to an ArrayBuffer or another device.
bool bind_given(Environment& state, Plan& plan) {
  for (size_t i = 0; i < plan.num_given; i++) {
    StorageEntry* entry = state.storages.find(to_integer(state.words[2 * i]));
    const int64_t first = to_integer(state.words[2 * i + 1]);
    if (!entry || first < 0 || entry->adopted || entry->no_value || entry->device != plan.device)
      return false;
    const bool reached = plan.bytes[i] > 0;
    if (first % plan.items[i] != 0) return false;
    if (reached && first > entry->bytes - plan.bytes[i]) return false;
    plan.slots[i] = {0, entry, reached ? entry->data + first : entry->data};
  }
  return true;
}

void release_from(Environment& state, Plan& plan, size_t first) {
  for (size_t i = first; i < plan.slots.size(); i++)
    if (plan.slots[i].handle) state.release(plan.slots[i].handle, false);
}

Status allocate_slots(Environment& state, Plan& plan, Stream& stream, ErrorText* error) {
  for (size_t i = plan.num_given; i < plan.slots.size(); i++) plan.slots[i] = {};
  for (size_t i = plan.num_given; i < plan.slots.size(); i++) {
    Plan::Slot& slot = plan.slots[i];
    if (plan.bytes[i] == 0 && i == plan.slots.size() - 1) continue;  // a plan without an arena
    const Status status = allocate_storage(state, stream, plan.bytes[i], &slot.handle, error);
    if (!status.ok()) {
      slot.handle = 0;
      release_from(state, plan, plan.num_given);
      return status;
    }
    slot.entry = state.storages.find(slot.handle);
    slot.data = slot.entry->data;
  }
  return kOk;
}

void bind_views(Environment& state, Plan& plan) {
  for (const Plan::Operand& operand : plan.operands) {
    char* data = plan.slots[operand.slot].data;
    plan.views[operand.view].data = operand.first > 0 ? data + operand.first : data;
  }
  const double* words = state.words + 2 * plan.num_given;
  for (const Plan::Draw& draw : plan.draws) plan.params[draw.param] = words[draw.word];
}

// Runs or enqueues all commands; `failed` is then the index of the one that failed.
Status run_commands(Environment& state, Plan& plan, Stream& stream, size_t* failed,
                    ErrorText* error) {
  size_t use = 0, write = 0;
  Status status = kOk;
  for (size_t i = 0; i < plan.commands.size() && status.ok(); i++) {
    Plan::Command& command = plan.commands[i];
    // Not before its first use: the stream then waits for other streams that wrote the storage.
    for (; use < command.uses_end; use++)
      if (plan.slots[plan.first_uses[use]].entry)
        state.touch(*plan.slots[plan.first_uses[use]].entry, stream);
    // Its parameters have changed since they were checked.
    if (command.draws) status = check_contract(command.call, stream.backend()->kernels, error);
    if (status.ok())
      status = runs_inline(stream, command.cost) ? run_inline(stream, command.call, error)
                                                 : stream.enqueue_kernel(command.call, error);
    if (status.ok())
      for (; write < command.writes_end; write++)
        if (plan.slots[plan.writes[write]].entry)
          state.write(*plan.slots[plan.writes[write]].entry, stream, false);
    if (status.ok() && state.blocking) status = state.synchronize(stream, error);
    if (!status.ok()) *failed = i;
  }
  const uint64_t sequence = stream.claimed();
  for (size_t i = 0; i < use; i++)
    if (plan.slots[plan.first_uses[i]].entry)
      plan.slots[plan.first_uses[i]].entry->last_sequence = sequence;
  return status;
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

// Fails with the index of the command in the first word, or -1 if none has run.
napi_value run_words(Environment& state, int64_t id, int64_t stream_id, bool with_tokens) {
  napi_env env = state.env;
  const auto found = state.plans.find(id);
  Stream* stream = state.stream(stream_id);
  if (found == state.plans.end() || !stream)
    return fail_call(env, Code::Closed, "runPlan: there is no such plan or stream");
  Plan& plan = *found->second;
  if (stream->device_code() != plan.device)
    return fail_call(env, Code::Device, "runPlan: the stream is of another device than the plan");
  state.settle_accounts();
  if (!bind_given(state, plan)) return boolean_value(env, false);
  ErrorText error;
  Status status = allocate_slots(state, plan, *stream, &error);
  if (!status.ok()) {
    state.words[0] = -1;
    return fail_call(env, status.code, error);
  }
  bind_views(state, plan);
  size_t failed = 0;
  status = run_commands(state, plan, *stream, &failed, &error);
  const size_t arena = plan.num_given + plan.num_outputs;
  if (!status.ok()) {
    release_from(state, plan, plan.num_given);
    state.words[0] = static_cast<double>(failed);
    return fail_call(env, status.code, error);
  }
  release_from(state, plan, arena);
  for (size_t i = 0; i < plan.num_outputs; i++)
    state.words[i] = static_cast<double>(plan.slots[plan.num_given + i].handle);
  return with_tokens && plan.num_outputs > 0 ? output_tokens(state, plan) : nullptr;
}

napi_value run_plan(napi_env env, napi_callback_info info) {
  napi_value raw[3] = {};
  size_t argc = 3;
  void* data;
  napi_get_cb_info(env, info, &argc, raw, nullptr, &data);
  double plan = 0, stream = 0;
  bool with_tokens = false;
  napi_get_value_double(env, raw[0], &plan);
  napi_get_value_double(env, raw[1], &stream);
  napi_get_value_bool(env, raw[2], &with_tokens);
  Environment& state = *static_cast<Environment*>(data);
  return answer(env, state.failure,
                run_words(state, to_integer(plan), to_integer(stream), with_tokens));
}

}  // namespace

void export_plans(Environment& state, napi_value exports) {
  export_function<create_plan>(state.env, exports, "createPlan");
  export_callback(state.env, exports, "runPlan", run_plan, &state);
}

}  // namespace shardwise
