#!/usr/bin/env node
// Stands in for node-gyp where prebuildify calls it: the same command line, built by cmake-js, device code as small as it gets.
const { spawnSync } = require('node:child_process');
const path = require('node:path');

const arch = process.argv.find((a) => a.startsWith('--arch='))?.slice('--arch='.length) ?? process.arch;
const debug = process.argv.includes('--debug') ? ['--debug'] : [];
const tool = require.resolve('cmake-js/bin/cmake-js');
const { status } = spawnSync(
  process.execPath,
  [tool, 'rebuild', '--out', 'build/cmake', '--arch', arch, '--CDSHARDWISE_RELEASE_COMPRESSION=ON', ...debug],
  { cwd: path.resolve(__dirname, '..'), stdio: 'inherit' },
);
process.exit(status ?? 1);
