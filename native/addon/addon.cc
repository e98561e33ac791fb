// Module entry, and every function that JavaScript calls. At the experimental API level finalizers
// run during garbage collection. At the stable level they wait for the event loop, so a synchronous
// training loop would never free memory.
#include "../platform/platform.h"
#include "call.h"
#include "memory.h"
#include "process.h"
#include "transfer.h"

namespace shardwise {

namespace {

constexpr Export kExports[] = {
    exported<take_failure>("takeFailure"),
    exported<set_blocking>("setBlocking"),
    exported<shutdown>("shutdown"),
    // commands and plans
    exported<&Commands::submit>("submit"),
    exported<&Plans::create>("createPlan"),
    exported<&Plans::run>("runPlan"),
    // storages
    exported<&Storages::allocate_with_token>("allocate"),
    exported<&Storages::allocate_pinned>("allocatePinned"),
    exported<&Storages::adopt>("adopt"),
    exported<&Storages::release>("release"),
    exported<&Storages::release_many>("releaseMany"),
    exported<&Storages::resize>("resize"),
    exported<&Storages::record_stream>("recordStream"),
    exported<&Storages::is_pinned>("isPinned"),
    exported<&Storages::live>("liveStorages"),
    exported<&Tokens::of_storage>("makeToken"),
    exported<&Tokens::of_saved_storage>("savedToken"),
    exported<&Tokens::set_saved>("setSaved"),
    exported<&Tokens::write_counts>("tokenCounts"),
    exported<&Tokens::defer_finalizers>("deferFinalizers"),
    // values
    exported<write>("write"),
    exported<copy_bytes>("copyBytes"),
    exported<read_sync>("readSync"),
    exported<read_scalar>("readScalar"),
    exported<read_async>("readAsync"),
    exported<when_done>("whenDone"),
    // streams and events
    exported<&Streams::default_stream>("defaultStream"),
    exported<&Streams::create>("streamCreate"),
    exported<&Streams::destroy>("streamDestroy"),
    exported<&Streams::synchronize>("synchronize"),
    exported<&Streams::query>("streamQuery"),
    exported<&Events::create>("eventCreate"),
    exported<&Events::destroy>("eventDestroy"),
    exported<&Events::record>("eventRecord"),
    exported<&Events::wait>("eventWait"),
    exported<&Events::query>("eventQuery"),
    exported<&Events::synchronize>("eventSynchronize"),
    exported<&Events::elapsed_ms>("eventElapsedMs"),
    // devices
    exported<open_backend>("openBackend"),
    exported<probe_library>("probeLibrary"),
    exported<device_count>("deviceCount"),
    exported<device_info>("deviceInfo"),
    exported<can_fuse>("canFuse"),
    exported<tuning_version>("tuningVersion"),
    exported<load_tuning>("loadTuning"),
    exported<tuning_configurations>("tuningConfigurations"),
    exported<last_tuned>("lastTuned"),
    exported<memory_stats>("memoryStats"),
    exported<reset_peak_stats>("resetPeakStats"),
    exported<empty_cache>("emptyCache"),
    exported<trim_heap>("trimHeap"),
    exported<memory_snapshot>("memorySnapshot"),
    // groups and their collectives
    exported<&Groups::local_region>("localRegion"),
    exported<&Groups::drop_region>("dropRegion"),
    exported<&Groups::publish>("publishGroup"),
    exported<&Groups::join_local>("joinLocal"),
    exported<&Groups::join_shared>("joinShared"),
    exported<&Groups::join_devices>("joinDevices"),
    exported<&Groups::split_devices>("splitDevices"),
    exported<&Groups::abort>("abortGroup"),
    exported<&Groups::leave>("leaveGroup"),
    exported<&Groups::compiling>("compiling"),
    exported<&Groups::compiled>("compiled"),
    exported<&Worlds::open_gloo>("openGloo"),
    exported<&Worlds::listen>("glooListen"),
    exported<&Worlds::connect>("glooConnect"),
    exported<&Worlds::join>("glooJoin"),
    exported<&Worlds::decline>("glooDecline"),
    exported<&Worlds::leave>("glooLeave"),
    exported<&Collectives::set_text>("setText"),
    exported<&Collectives::call>("collective"),
    // profiles
    exported<&Profile::start>("profileStart"),
    exported<&Profile::stop>("profileStop"),
    exported<&Profile::done>("profileDone"),
    exported<&Profile::take>("profileTake"),
    exported<Profile::clock>("profileClock"),
    // the process
    exported<end_with_parent>("endWithParent"),
    exported<lock_file>("lockFile"),
};

Napi::Object init(Napi::Env env, Napi::Object exports) {
  platform::enlarge_stacks();
  auto* state = new Environment(env);
  if (!state->words) {
    delete state;
    return exports;
  }
  env.AddCleanupHook([](Environment* ended) { ended->close(); }, state);
  const Backend* cpu = Devices::get().cpu;
  const auto kernel_name = [cpu](size_t i) { return cpu->kernels[i].name; };
  set(exports, "words", state->words_buffer.Value());
  set(exports, "abi", to_value(env, kBackendAbi));
  set(exports, "kernelNames", list_of(env, cpu->num_kernels, kernel_name));
  for (const auto& [name, call] : kExports) {
    napi_value function = nullptr;
    napi_create_function(env, name, NAPI_AUTO_LENGTH, call, state, &function);
    set(exports, name, {env, function});
  }
  return exports;
}

}  // namespace

}  // namespace shardwise

using shardwise::init;
NODE_API_MODULE(shardwise, init)
