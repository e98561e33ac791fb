#!/usr/bin/env node
// Addons for platforms other than the one that builds, each a package of its own: the one package
// would outgrow its limit with them. `shardwise` names them as optional dependencies, so that npm
// installs the one that fits.
//
//   build [NAME ...]  cross-compiles into build/platforms/NAME, which npm publish takes; all, or
//                     those of SHARDWISE_PLATFORMS
//   check             fails unless all are built for this version: before the long build of a package
//   name              writes them into package.json: before packing, after they are published
//   forget            takes them out again
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { fromNpm, zigOptions } = require('./toolchain.cjs');

const root = path.resolve(__dirname, '..');

const gcc = {
  tools: 'g++-aarch64-linux-gnu cmake ninja-build',
  prepare: () => [
    '-DCMAKE_SYSTEM_NAME=Linux',
    '-DCMAKE_SYSTEM_PROCESSOR=aarch64',
    '-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++',
    '-DCMAKE_MODULE_LINKER_FLAGS=-s',
  ],
};

const platforms = [
  { name: 'linux-arm64', os: 'linux', cpu: 'arm64', libc: 'glibc', ...gcc },
  {
    name: 'linux-x64-musl',
    os: 'linux',
    cpu: 'x64',
    libc: 'musl',
    ...zigFor('x86_64-linux-musl', linux),
  },
  { name: 'darwin-arm64', os: 'darwin', cpu: 'arm64', ...zigFor('aarch64-macos.11.0', darwin) },
  { name: 'darwin-x64', os: 'darwin', cpu: 'x64', ...zigFor('x86_64-macos.11.0', darwin) },
  { name: 'win32-x64', os: 'win32', cpu: 'x64', ...zigFor('x86_64-windows-gnu', windows) },
];

/**
 * Debian has no C++ library and headers for musl, macOS and Windows. Zig's compiler has them, and
 * links the library statically.
 */
function zigFor(target, system) {
  const prepare = () => {
    const zig = fromNpm('zig');
    return [...zigOptions(zig, target), ...system(target, zig)];
  };
  return { tools: 'cmake ninja-build lld-16', prepare };
}

function linux() {
  return ['-DCMAKE_MODULE_LINKER_FLAGS=-s'];
}

/**
 * Zig's linker for macOS exports everything, and prefers its own memcpy and exp to those of the
 * system: LLVM's links what zig has compiled. It signs the file, without which processors of Apple
 * load none.
 */
function darwin(target, zig) {
  const [arch] = target.split('-');
  const link = [
    'ld64.lld-16 -dylib -arch',
    arch === 'aarch64' ? 'arm64' : arch,
    '-platform_version macos 11.0 14.0 -dead_strip -x -adhoc_codesign -undefined dynamic_lookup',
    ...entryPoints.map((name) => `-exported_symbol _${name}`),
    '-install_name shardwise.node -o <TARGET> <OBJECTS>',
    ...standardLibrary(target, zig),
    path.join(path.dirname(zig), 'lib', 'libc', 'darwin', 'libSystem.tbd'),
  ];
  return [
    '-DCMAKE_SYSTEM_NAME=Darwin',
    `-DCMAKE_SYSTEM_PROCESSOR=${arch}`,
    `-DSHARDWISE_LINK_MODULE=${link.join(' ')}`,
  ];
}

const entryPoints = ['napi_register_module_v1', 'node_api_module_get_api_version_v1'];

/** The archives of the C++ library, which zig compiles for a target when it first links. */
function standardLibrary(target, zig) {
  const folder = path.join(root, 'build', 'cross', 'standard-library');
  fs.mkdirSync(folder, { recursive: true });
  const source = path.join(folder, 'empty.cc');
  fs.writeFileSync(source, '');
  const output = path.join(folder, target);
  const args = ['c++', '-target', target, '-O2', '-g0', '-v', '-shared', '-o', output, source];
  const { stderr } = spawnSync(zig, args, { encoding: 'utf8', maxBuffer: 2 ** 26 });
  const archives = /^zig ld .*/m.exec(stderr)?.[0].match(/\S+libc\+\+(abi)?\.a(?=\s)/g);
  if (archives?.length !== 2) throw new Error(`zig has no C++ library for ${target}:\n${stderr}`);
  return archives;
}

function windows() {
  return [
    '-DCMAKE_SYSTEM_NAME=Windows',
    '-DCMAKE_SYSTEM_PROCESSOR=x86_64',
    '-DCMAKE_MODULE_LINKER_FLAGS=-s',
  ];
}

/** The names in SHARDWISE_PLATFORMS, or all. */
const chosen = () =>
  process.env.SHARDWISE_PLATFORMS?.split(' ').filter(Boolean) ?? platforms.map(({ name }) => name);

const read = () => JSON.parse(fs.readFileSync(path.join(root, 'package.json'), 'utf8'));

function run(command, args, tools) {
  const { status, error } = spawnSync(command, args, { cwd: root, stdio: 'inherit' });
  if (status === 0) return;
  console.error(
    `platforms: ${command} failed${error ? `: ${error.message}` : ''}. Debian's packages ${tools} have what it takes.`,
  );
  process.exit(1);
}

function build(platform) {
  const { name, tools, prepare } = platform;
  const folder = path.join('build', 'cross', name);
  const off = ['CUDA', 'GLOO'].map((part) => `-DSHARDWISE_${part}=OFF`);
  const output = `-DSHARDWISE_OUTPUT=${path.join(root, folder, 'out')}`;
  const configure = ['-G', 'Ninja', '-S', '.', '-B', folder, '-DCMAKE_BUILD_TYPE=Release'];
  run('cmake', [...configure, ...prepare(), ...off, output], tools);
  run('cmake', ['--build', folder, '--target', 'shardwise', '--parallel'], tools);
  const target = path.join(root, 'build', 'platforms', name);
  fs.mkdirSync(target, { recursive: true });
  const built = path.join(folder, 'out', 'Release', 'shardwise.node');
  fs.copyFileSync(path.join(root, built), path.join(target, 'shardwise.node'));
  writePackage(target, platform);
}

function writePackage(target, { name, os, cpu, libc }) {
  const { version, license, repository, homepage, bugs, engines } = read();
  const manifest = {
    name: `@shardwise/${name}`,
    version,
    description: `The native part of shardwise for ${name}.`,
    license,
    ...{ homepage, repository, bugs, engines },
    main: 'shardwise.node',
    files: ['shardwise.node'],
    os: [os],
    cpu: [cpu],
    ...(libc && { libc: [libc] }),
  };
  fs.writeFileSync(path.join(target, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
  fs.writeFileSync(
    path.join(target, 'README.md'),
    `# @shardwise/${name}\n\nThe native part of [shardwise](https://www.npmjs.com/package/shardwise) for ${name}. Install \`shardwise\`: npm adds this.\n`,
  );
  fs.copyFileSync(path.join(root, 'LICENSE'), path.join(target, 'LICENSE'));
}

/** The manifest that is published: it names the platforms that were built for its version. */
function withPlatforms(manifest) {
  const { version } = manifest;
  const entries = platforms.map(({ name }) => {
    const built = path.join(root, 'build', 'platforms', name, 'package.json');
    if (!fs.existsSync(built) || JSON.parse(fs.readFileSync(built, 'utf8')).version !== version)
      throw new Error(`${name} is not built for version ${version}: npm run prebuild:platforms`);
    return [`@shardwise/${name}`, version];
  });
  return { ...manifest, optionalDependencies: Object.fromEntries(entries) };
}

function write(manifest) {
  fs.writeFileSync(path.join(root, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
}

function main([command, ...names]) {
  const known = platforms.map(({ name }) => name);
  if (command === 'build' && names.length === 0) names = chosen();
  const unknown = names.filter((name) => !known.includes(name));
  if (unknown.length > 0) throw new Error(`platforms: ${unknown} is none of ${known}`);
  if (command === 'build') for (const each of platforms) names.includes(each.name) && build(each);
  else if (command === 'check') withPlatforms(read());
  else if (command === 'name') write(withPlatforms(read()));
  else if (command === 'forget') {
    const { optionalDependencies: _, ...manifest } = read();
    write(manifest);
  } else throw new Error('platforms: build [NAME ...], check, name or forget');
}

module.exports = { platforms, chosen, withPlatforms };
if (require.main === module) main(process.argv.slice(2));
