#!/usr/bin/env node
// Stands in for node-gyp where prebuildify calls it: the same command line, built by cmake-js.
const { spawnSync } = require('node:child_process');
const path = require('node:path');

const arch = process.argv.find((arg) => arg.startsWith('--arch='))?.slice('--arch='.length) ?? process.arch;
const debug = process.argv.includes('--debug') ? ['--debug'] : [];
const cmakeJs = require.resolve('cmake-js/bin/cmake-js');
const { status } = spawnSync(process.execPath, [cmakeJs, 'rebuild', '--out', 'build/prebuild', '--arch', arch, ...debug], {
  cwd: path.resolve(__dirname, '..'),
  stdio: 'inherit',
});
process.exit(status ?? 1);
