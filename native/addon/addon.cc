// Module entry. At the experimental API level finalizers run during garbage collection. At the
// stable level they wait for the event loop, so a synchronous training loop would never free
// memory.
#include <pthread.h>
#include <stdlib.h>  // tells the C library

#include "environment.h"

namespace shardwise {

namespace {

void on_environment_end(void* data) { static_cast<Environment*>(data)->close(); }

napi_value last_failure(napi_env env, napi_callback_info) { return take_failure(env); }

// musl gives a thread 128 KiB, and some kernels keep more on their stacks. It never lowers this.
void enlarge_stacks() {
#if defined(__linux__) && !defined(__GLIBC__)
  constexpr size_t kStackBytes = 2 << 20;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
#endif
}

napi_value init(napi_env env, napi_value exports) {
  enlarge_stacks();
  auto* state = new Environment(env);
  if (!state->words) {
    delete state;
    return nullptr;
  }
  napi_set_instance_data(env, state, nullptr, nullptr);
  napi_add_env_cleanup_hook(env, on_environment_end, state);

  napi_value words = nullptr, abi = nullptr, names = nullptr;
  napi_get_reference_value(env, state->words_ref, &words);
  set_property(env, exports, "words", words);
  napi_create_uint32(env, kBackendAbi, &abi);
  set_property(env, exports, "abi", abi);
  const Backend* cpu = Devices::get().cpu;
  napi_create_array_with_length(env, cpu->num_kernels, &names);
  for (int32_t i = 0; i < cpu->num_kernels; i++) {
    napi_value name = nullptr;
    napi_create_string_utf8(env, cpu->kernels[i].name, NAPI_AUTO_LENGTH, &name);
    napi_set_element(env, names, i, name);
  }
  set_property(env, exports, "kernelNames", names);
  export_function<last_failure>(env, exports, "takeFailure");
  export_submit(*state, exports);
  export_plans(*state, exports);
  export_memory(env, exports);
  export_writes(env, exports);
  export_reads(env, exports);
  export_streams(env, exports);
  export_devices(env, exports);
  export_groups(env, exports);
  export_collectives(env, exports);
  export_device_groups(env, exports);
  export_gloo(env, exports);
  export_compilation(env, exports);
  export_process(env, exports);
  export_profile(env, exports);
  return exports;
}

}  // namespace

}  // namespace shardwise

NAPI_MODULE_INIT() { return shardwise::init(env, exports); }
