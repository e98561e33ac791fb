#!/usr/bin/env node
// Builds the native part through CMake.
//
//   --if-needed       only what is missing or older than its sources; what npm runs after an installation in a clone
//   --cmake <config>  of another kind than Release; node-gyp's route through binding.gyp
//
// SHARDWISE_CUDA=1 builds the CUDA part, =0 leaves it out; without it, an NVIDIA driver decides.
// Other variables: SHARDWISE_GLOO=OFF, SHARDWISE_CUDA_ARCHITECTURES, SHARDWISE_SANITIZE. A choice
// stays until it is changed.
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { toolchain } = require('./toolchain.cjs');

const root = path.resolve(__dirname, '..');
const args = process.argv.slice(2);
const plainAt = args.indexOf('--cmake');
const config = plainAt >= 0 ? args[plainAt + 1] || 'Release' : 'Release';
const options = [
  'SHARDWISE_CUDA',
  'SHARDWISE_GLOO',
  'SHARDWISE_CUDA_ARCHITECTURES',
  'SHARDWISE_SANITIZE',
];

const folder = path.join('build', 'cmake');
const output = path.join(root, 'build', config);

if (args.includes('--if-needed') && !isNeeded()) process.exit(0);
build();
report();

function isNeeded() {
  let serving;
  try {
    require('node-gyp-build')(root);
    // the local build, or the prebuild that was made of it
    serving = require('node-gyp-build').path(root);
  } catch {
    return true;
  }
  const changed = Math.max(
    newest(path.join(root, 'native')),
    fs.statSync(path.join(root, 'CMakeLists.txt')).mtimeMs,
  );
  if (changed > fs.statSync(serving).mtimeMs) return true;
  const lacks = (name) => serving.startsWith(output) && !fs.existsSync(path.join(output, name));
  return (lacks('cuda-backend.so') && wantsCuda()) || (lacks('gloo-engine.so') && wantsGloo());
}

/** Time of the latest change among the sources of a folder. */
function newest(directory) {
  let time = 0;
  for (const entry of fs.readdirSync(directory, { withFileTypes: true })) {
    const file = path.join(directory, entry.name);
    if (entry.isDirectory()) time = Math.max(time, entry.name === 'selftest' ? 0 : newest(file));
    else if (/\.(cc|h|inc|def|cu|cuh|in|map)$/.test(entry.name))
      time = Math.max(time, fs.statSync(file).mtimeMs);
  }
  return time;
}

function findNvcc() {
  const folders = [process.env.CUDA_HOME, process.env.CUDA_PATH, '/usr/local/cuda'].flatMap(
    (home) => (home ? [path.join(home, 'bin')] : []),
  );
  return [...(process.env.PATH ?? '').split(path.delimiter), ...folders].some((bin) =>
    fs.existsSync(path.join(bin, 'nvcc')),
  );
}

function cacheSays(option) {
  try {
    return new RegExp(`^${option}:\\w+=(.*)$`, 'm').exec(
      fs.readFileSync(path.join(root, folder, 'CMakeCache.txt'), 'utf8'),
    )?.[1];
  } catch {
    return undefined;
  }
}

function isOff(option) {
  return /^(OFF|0|NO|FALSE)$/i.test(process.env[option] ?? cacheSays(option) ?? 'ON');
}

/** CUDA takes ten minutes to compile: without a driver only whoever asks for it waits for that. */
function choosesCuda() {
  const chosen = process.env.SHARDWISE_CUDA ?? cacheSays('SHARDWISE_CUDA');
  return chosen === undefined ? hasDriver() : !isOff('SHARDWISE_CUDA');
}

function hasDriver() {
  if (fs.existsSync('/proc/driver/nvidia/version') || fs.existsSync('/dev/dxg')) return true;
  const { stdout } = spawnSync('ldconfig', ['-p'], { encoding: 'utf8' });
  return /libcuda\.so\.1/.test(stdout ?? '');
}

function wantsCuda() {
  return choosesCuda() && findNvcc();
}

function wantsGloo() {
  return (
    !isOff('SHARDWISE_GLOO') &&
    ['/usr/include', '/usr/local/include'].some((folder) =>
      fs.existsSync(path.join(folder, 'gloo')),
    )
  );
}

function run(command, commandArgs) {
  const { status, error } = spawnSync(command, commandArgs, { cwd: root, stdio: 'inherit' });
  if (error === undefined && status === 0) return;
  const reason = error
    ? `cannot run ${command}: ${error.message}`
    : `${path.basename(command)} failed`;
  console.error(
    `shardwise: ${reason}. The native build needs a C++20 compiler (g++ 12, clang 15) and CMake 3.22 or newer.`,
  );
  process.exit(status || 1);
}

/** CMake refuses a build folder that was configured at another place, as in a clone that moved. */
function isMoved() {
  const before = cacheSays('CMAKE_HOME_DIRECTORY');
  if (before === undefined) return false;
  return !fs.existsSync(before) || fs.realpathSync(before) !== fs.realpathSync(root);
}

/** The choices of before, for a build folder that has to be made again. */
function forget() {
  const kept = options.flatMap((name) => {
    const value = cacheSays(name);
    return value === undefined ? [] : [[name, value]];
  });
  fs.rmSync(path.join(root, folder), { recursive: true });
  return Object.fromEntries(kept);
}

function build() {
  // make's variables of an outer build must not reach the inner one.
  for (const name of ['MAKEFLAGS', 'MFLAGS', 'MAKELEVEL', 'MAKEOVERRIDES'])
    delete process.env[name];
  const withCuda = choosesCuda() ? 'ON' : 'OFF';
  const before = isMoved() ? forget() : {};
  const choices = { ...before, ...process.env, SHARDWISE_CUDA: withCuda };
  const chosen = options.flatMap((name) => (choices[name] ? [`${name}=${choices[name]}`] : []));
  // A device compilation may take 2 GiB.
  const jobs = String(
    Math.max(1, Math.min(os.availableParallelism(), Math.floor(os.totalmem() / 2 ** 31))),
  );
  const { cmake, options: tools, missing } = toolchain();
  if (missing.length > 0)
    console.log(`shardwise: this machine has no ${missing.join(', ')}: builds with those of npm`);
  const isNew = cacheSays('CMAKE_HOME_DIRECTORY') === undefined;
  run(cmake, [
    ...(isNew ? tools : []),
    ...['-S', '.', '-B', folder, `-DCMAKE_BUILD_TYPE=${config}`],
    ...chosen.map((option) => `-D${option}`),
  ]);
  run(cmake, ['--build', folder, '--parallel', jobs]);
}

function report() {
  const addon = path.join(output, 'shardwise.node');
  const now = new Date();
  fs.utimesSync(addon, now, now); // sources that changed without effect count as built
  if (!/^(|OFF|0)$/i.test(process.env.SHARDWISE_SANITIZE ?? cacheSays('SHARDWISE_SANITIZE') ?? ''))
    return;
  try {
    require(addon); // a kernel of the table without code is seen only here
  } catch (error) {
    console.error(`shardwise: the addon was built but does not load: ${error.message}`);
    process.exit(1);
  }
  if (!fs.existsSync(path.join(output, 'gloo-engine.so')))
    console.log(
      'shardwise: built without gloo (no libgloo-dev); ranks of one machine do not need it.',
    );
  if (wantsCuda()) return;
  const reason = findNvcc()
    ? 'no NVIDIA driver was found, or it was left out; SHARDWISE_CUDA=1 npm run build:native builds it'
    : 'no nvcc found';
  console.log(`shardwise: built without CUDA: ${reason}. Everything works on the CPU.`);
}
