#include "tokens.h"

#include "environment.h"

namespace shardwise {

// The finalizers run inside a collection: they must not call JavaScript, nor take locks that are
// held while the engine is called.
void Tokens::on_collected(node_api_basic_env, void* data, void* hint) {
  static_cast<Environment*>(hint)->tokens.drop(reinterpret_cast<int64_t>(data));
}

void Tokens::on_shared_collected(node_api_basic_env, void* data, void* hint) {
  auto* shared = static_cast<Shared*>(data);
  Tokens& tokens = static_cast<Environment*>(hint)->tokens;
  if (tokens.shared_ == shared) tokens.shared_ = nullptr;
  for (int i = 0; i < shared->count; i++) tokens.drop(shared->handles[i]);
  delete shared;
}

void Tokens::on_saved_collected(node_api_basic_env, void* data, void* hint) {
  Tokens& tokens = static_cast<Environment*>(hint)->tokens;
  tokens.mark_saved(reinterpret_cast<int64_t>(data), false, true);
}

// Napi::External allocates memory for its finalizer, which takes 16 ns a token.
Napi::Value Tokens::make_collectable(void* data, node_api_basic_finalize on_collected) {
  const Napi::Env env = state_.env;
  napi_value token = nullptr;
  if (!defers_finalizers_) {
    const napi_status made = napi_create_external(env, data, on_collected, &state_, &token);
    return made == napi_ok ? Napi::Value(env, token) : Napi::Value();
  }
  napi_ref weak = nullptr;
  if (napi_create_object(env, &token) != napi_ok ||
      napi_create_reference(env, token, 0, &weak) != napi_ok)
    return {};
  weak_.push_back({weak, data, on_collected});
  return {env, token};
}

void Tokens::sweep() {
  size_t kept = 0;
  for (const Weak& each : weak_) {
    napi_value token = nullptr;
    napi_get_reference_value(state_.env, each.reference, &token);
    if (token) {
      weak_[kept++] = each;
    } else {
      napi_delete_reference(state_.env, each.reference);
      each.on_collected(state_.env, each.data, &state_);
    }
  }
  weak_.resize(kept);
}

Napi::Value Tokens::make(int64_t handle, StorageEntry& entry) {
  const Napi::Value token = make_collectable(reinterpret_cast<void*>(handle), on_collected);
  if (!token.IsEmpty()) count_token(entry);  // else the storage is freed with its environment
  return token;
}

Napi::Value Tokens::share(int64_t handle, StorageEntry& entry) {
  if (shared_ && shared_->count < Shared::kMost) {
    shared_->handles[shared_->count++] = handle;
    count_token(entry);
    return {};
  }
  auto* fresh = new Shared;
  fresh->handles[fresh->count++] = handle;
  const Napi::Value token = make_collectable(fresh, on_shared_collected);
  if (token.IsEmpty()) {
    delete fresh;
    return {};
  }
  shared_ = fresh;
  count_token(entry);
  return token;
}

void Tokens::count_token(StorageEntry& entry) {
  entry.tokens++;
  account(entry);
}

// The size of one storage that the engine accounts for. The engine answers growth by marking
// everything bit by bit, and what a step shows to a running marking lives until the next one. So
// large storages, which lib/eager/gc-policy.ts counts, hardly count here.
static int64_t reported(const StorageEntry& entry) {
  constexpr int64_t large = 64 << 10, least = 4 << 10, share = 4096;
  return entry.bytes < large ? entry.bytes : least + entry.bytes / share;
}

void Tokens::account(StorageEntry& entry) {
  const bool is_collectable = entry.tokens > 0 && !entry.saved;
  if (is_collectable == (entry.token_bytes >= 0)) return;
  const int64_t sign = is_collectable ? 1 : -1;
  if (is_collectable) entry.token_bytes = reported(entry);
  unsaved_ += sign;
  unsaved_bytes_ += sign * entry.bytes;
  external_delta_ += sign * entry.token_bytes;
  if (!is_collectable) entry.token_bytes = -1;
}

void Tokens::resized(const StorageEntry& entry, int64_t bytes) {
  if (entry.token_bytes >= 0) unsaved_bytes_ += bytes - entry.bytes;
  if (entry.saved) saved_bytes_ += bytes - entry.bytes;
}

void Tokens::freed(StorageEntry& entry) {
  entry.tokens = 0;
  if (entry.saved) {
    saved_--;
    saved_bytes_ -= entry.bytes;
  }
  account(entry);
  if (entry.adopted) dropped_.push_back(static_cast<napi_ref>(entry.adopted));
}

// A token was collected: frees the storage if it was the last one.
void Tokens::drop(int64_t handle) {
  StorageEntry* entry = state_.storages.find(handle);
  if (!entry) return;
  entry->tokens--;
  if (entry->tokens == 0 && !entry->saved)
    state_.storages.free(*entry, handle, true);
  else
    account(*entry);
}

bool Tokens::mark_saved(int64_t handle, bool saved, bool collected) {
  StorageEntry* entry = state_.storages.find(handle);
  if (!entry || entry->saved == saved) return false;
  entry->saved = saved;
  saved_ += saved ? 1 : -1;
  saved_bytes_ += saved ? entry->bytes : -entry->bytes;
  if (!saved && entry->tokens == 0) {
    state_.storages.free(*entry, handle, collected);
    return true;
  }
  account(*entry);
  return false;
}

void Tokens::report() {
  int64_t delta = 0;
  std::swap(delta, external_delta_);
  Napi::MemoryManagement::AdjustExternalMemory(state_.env, delta);
}

void Tokens::delete_dropped() {
  for (napi_ref each : dropped_) napi_delete_reference(state_.env, each);
  dropped_.clear();
}

Status Tokens::of_storage(int64_t handle, Napi::Value* token, ErrorText* error) {
  StorageEntry* entry = state_.storages.find(handle);
  if (!entry) return fail(error, Code::Closed, "makeToken: the storage was freed");
  *token = make(handle, *entry);
  return kOk;
}

Status Tokens::of_saved_storage(int64_t handle, Napi::Value* token, ErrorText* error) {
  if (!state_.storages.find(handle))
    return fail(error, Code::Closed, "savedToken: the storage was freed");
  mark_saved(handle, true, false);
  *token = make_collectable(reinterpret_cast<void*>(handle), on_saved_collected);
  return kOk;
}

bool Tokens::set_saved(int64_t handle, bool saved) { return mark_saved(handle, saved, false); }

void Tokens::write_counts() {
  sweep();
  state_.words[0] = static_cast<double>(unsaved_);
  state_.words[1] = static_cast<double>(unsaved_bytes_);
  state_.words[2] = static_cast<double>(saved_bytes_);
}

}  // namespace shardwise
