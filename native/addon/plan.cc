// Plans: the commands of a graph, decoded and checked once (plan_reader.cc), and run by one call with
// the memory of that time.
#include "plan.h"

#include <algorithm>

#include "../include/text.h"
#include "command.h"
#include "contracts.h"

namespace shardwise {

namespace {

constexpr int64_t kMostPlanWords = int64_t{1} << 28;

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
      read_plan(*plan, static_cast<const double*>(data), static_cast<int64_t>(length), &error);
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
