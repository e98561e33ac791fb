#!/usr/bin/env node
// Builds the native part: `--if-needed` only where no addon loads yet, `--cmake <Config>` without cmake-js (node-gyp's route).
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

const root = path.resolve(__dirname, '..');
const args = process.argv.slice(2);
const plain = args.indexOf('--cmake');
const config = plain >= 0 ? args[plain + 1] || 'Release' : 'Release';

function loads() {
  try {
    require('node-gyp-build')(root);
    return true;
  } catch {
    return false;
  }
}

function stale() {
  const addon = path.join(root, 'build', 'Release', 'shardwise.node');
  if (!fs.existsSync(addon)) return false; // a prebuild serves
  const built = fs.statSync(addon).mtimeMs;
  const newer = (folder) =>
    fs.readdirSync(folder, { withFileTypes: true }).some((entry) => {
      const file = path.join(folder, entry.name);
      return entry.isDirectory() ? newer(file) : fs.statSync(file).mtimeMs > built;
    });
  return newer(path.join(root, 'native'));
}

if (args.includes('--if-needed') && loads() && !stale()) process.exit(0);

// make's variables of an outer build must not reach the inner one.
for (const name of ['MAKEFLAGS', 'MFLAGS', 'MAKELEVEL', 'MAKEOVERRIDES']) delete process.env[name];

function run(command, commandArgs) {
  const { status, error } = spawnSync(command, commandArgs, { cwd: root, stdio: 'inherit' });
  if (error) console.error(`shardwise: cannot run ${command}: ${error.message}. A C++20 compiler and CMake 3.22 or newer are needed.`);
  if (status !== 0) process.exit(status ?? 1);
}

function cmakeJs() {
  try {
    return require.resolve('cmake-js/bin/cmake-js');
  } catch {
    return null;
  }
}

const defines = ['SHARDWISE_CUDA', 'SHARDWISE_RELEASE_COMPRESSION', 'SHARDWISE_SANITIZE', 'CMAKE_CUDA_ARCHITECTURES'].flatMap((name) =>
  process.env[name] ? [[name, process.env[name]]] : [],
);
const tool = plain >= 0 ? null : cmakeJs();
if (tool) {
  run(process.execPath, [tool, 'compile', '--out', 'build/cmake', '--parallel', String(os.availableParallelism()), ...defines.map(([k, v]) => `--CD${k}=${v}`)]);
} else {
  const folder = 'build/plain';
  run('cmake', ['-S', '.', '-B', folder, `-DCMAKE_BUILD_TYPE=${config}`, ...defines.map(([k, v]) => `-D${k}=${v}`)]);
  run('cmake', ['--build', folder, '--parallel', String(os.availableParallelism())]);
}
