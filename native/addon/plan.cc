#include <algorithm>

#include "contracts.h"
#include "environment.h"

namespace shardwise {

namespace {

constexpr int64_t kMostPlanWords = int64_t{1} << 28;

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
    if (plan.slots[i].handle) state.storages.release(plan.slots[i].handle);
    plan.slots[i] = {};
  }
}

Status allocate_slot(Environment& state, Plan& plan, Stream& stream, size_t i, ErrorText* error) {
  Plan::Slot& slot = plan.slots[i];
  const Status status = state.storages.allocate(stream, plan.bytes[i], &slot.handle, error);
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
      state.storages.touch(*entry, stream);
  return kOk;
}

void settle_command(Environment& state, Plan& plan, const Plan::Command& command, Stream& stream) {
  Plan::Progress& at = plan.progress;
  for (; at.write < command.writes_end; at.write++)
    if (StorageEntry* entry = plan.slots[plan.writes[at.write]].entry)
      state.storages.write(*entry, stream, false);
  for (; at.free < command.frees_end; at.free++) {
    Plan::Slot& slot = plan.slots[plan.frees[at.free]];
    if (plan.used[plan.frees[at.free]]) slot.entry->last_sequence = stream.claimed();
    state.storages.release(slot.handle);
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
    at.stopped = status.code == Code::OutOfMemory;
    if (!status.ok()) break;
    if (command.rechecks) status = check_contract(command.call, stream.backend()->kernels, error);
    if (status.ok())
      status = runs_inline(stream, command.cost) ? run_inline(stream, command.call, error)
                                                 : stream.enqueue_kernel(command.call, error);
    if (!status.ok()) break;
    settle_command(state, plan, command, stream);
    if (state.blocking) status = state.streams.synchronize(stream, error);
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

// Whether all memory is there that a run which stopped goes on with.
bool holds_all(Environment& state, const Plan& plan) {
  return std::all_of(plan.slots.begin(), plan.slots.end(), [&](const Plan::Slot& slot) {
    return slot.handle == 0 || state.storages.find(slot.handle) == slot.entry;
  });
}

Napi::Value output_tokens(Environment& state, const Plan& plan) {
  const auto token = [&](size_t i) {
    const Plan::Slot& output = plan.slots[plan.num_given + i];
    return state.tokens.make(output.handle, *output.entry);
  };
  return plan.num_outputs == 1 ? token(0) : list_of(state.env, plan.num_outputs, token);
}

}  // namespace

// Runs inside a collection: must not call JavaScript.
void Plans::on_collected(node_api_basic_env, void* data, void* hint) {
  static_cast<Environment*>(hint)->plans.plans_.erase(reinterpret_cast<int64_t>(data));
}

Status Plans::create(Napi::Value words, DeviceCode device, Napi::Value* token, ErrorText* error) {
  const bool typed =
      words.IsTypedArray() && words.As<Napi::TypedArray>().TypedArrayType() == napi_float64_array;
  auto list = typed ? words.As<Napi::Float64Array>() : Napi::Float64Array();
  if (!typed || static_cast<int64_t>(list.ElementLength()) > kMostPlanWords)
    return fail(error, Code::Invalid, "malformed plan: expected a Float64Array of words");
  auto plan = std::make_unique<Plan>();
  plan->device = device;
  const Status status =
      read_plan(*plan, list.Data(), static_cast<int64_t>(list.ElementLength()), error);
  if (!status.ok()) return status;
  const int64_t id = next_++;
  *token = state_.tokens.make_collectable(reinterpret_cast<void*>(id), on_collected);
  if (token->IsEmpty()) return kOk;
  plans_[id] = std::move(plan);
  state_.words[0] = static_cast<double>(id);
  return kOk;
}

Status Plans::run(double id, double stream_id, bool with_tokens, bool goes_on, Napi::Value* tokens,
                  ErrorText* error) {
  const auto found = plans_.find(to_integer(id));
  Stream* stream = state_.streams.find(to_integer(stream_id));
  if (found == plans_.end() || !stream)
    return fail(error, Code::Closed, "runPlan: there is no such plan or stream");
  Plan& plan = *found->second;
  if (stream->device_code() != plan.device)
    return fail(error, Code::Device, "runPlan: the stream is of another device than the plan");
  if (goes_on && (!plan.progress.stopped || !holds_all(state_, plan)))
    return fail(error, Code::Invalid, "runPlan: the plan has no run that can go on");
  state_.tokens.settle();
  Status status = kOk;
  if (goes_on) {
    plan.progress.stopped = false;
  } else {
    if (!begin_run(state_, plan)) {
      *tokens = Napi::Boolean::New(state_.env, false);
      return kOk;
    }
    status = allocate_first(state_, plan, *stream, error);
    plan.progress.stopped = status.code == Code::OutOfMemory;
  }
  if (status.ok()) status = run_commands(state_, plan, *stream, error);
  if (!status.ok()) return fail_run(plan, status, goes_on);
  *tokens = finish_run(plan, with_tokens);
  return kOk;
}

// Keeps the memory of a run that can go on. One whose kernel ran out of memory cannot: it may have
// changed its operands.
Status Plans::fail_run(Plan& plan, Status status, bool goes_on) {
  Plan::Progress& at = plan.progress;
  const bool none_ran = at.stopped && at.command == 0;
  at.stopped = at.stopped && !none_ran && !goes_on;
  if (!at.stopped) release_from(state_, plan, plan.num_given);
  state_.words[0] = none_ran ? -1 : static_cast<double>(at.command);
  state_.words[1] = at.stopped ? 1 : 0;
  return status;
}

Napi::Value Plans::finish_run(Plan& plan, bool with_tokens) {
  release_from(state_, plan, plan.num_given + plan.num_outputs);
  Napi::Value tokens;
  if (with_tokens && plan.num_outputs > 0) tokens = output_tokens(state_, plan);
  for (size_t i = 0; i < plan.num_outputs; i++) {
    Plan::Slot& slot = plan.slots[plan.num_given + i];
    state_.words[i] = static_cast<double>(slot.handle);
    slot = {};
  }
  return tokens;
}

}  // namespace shardwise
