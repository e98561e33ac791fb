// The functions of Node-API. Windows binds an imported function to the name of a file, and the
// program that runs the addon need not be called node.exe: so each function is looked up in the
// program when the addon is loaded, and jumps there.
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <cstdio>
#include <cstdlib>

namespace {

[[noreturn]] void is_missing() {
  std::fputs("shardwise: this version of Node lacks a function of Node-API.\n", stderr);
  std::abort();
}

HMODULE program() {
  const HMODULE node = GetModuleHandleW(L"libnode.dll");  // Node as a library of another program
  return node ? node : GetModuleHandleW(nullptr);
}

void* find(const char* name) {
  const FARPROC found = GetProcAddress(program(), name);
  return found ? reinterpret_cast<void*>(found) : reinterpret_cast<void*>(is_missing);
}

// The addon stays loaded, because its threads may still run when the last worker that loaded it ends.
const bool persistent = [] {
  constexpr DWORD kPersistent =
      GET_MODULE_HANDLE_EX_FLAG_PIN | GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS;
  HMODULE own;
  return GetModuleHandleExW(kPersistent, reinterpret_cast<LPCWSTR>(&is_missing), &own) != 0;
}();

}  // namespace

// Before any other initialisation: the addon calls Node-API only later.
#define SW_NODE_API(name)        \
  extern "C" void* sw_##name;    \
  void* sw_##name = find(#name); \
  extern "C" __attribute__((naked, used)) void name() { asm("jmp *sw_" #name "(%rip)"); }
#include "node_api_symbols.inc"
#undef SW_NODE_API
