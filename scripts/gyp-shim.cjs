#!/usr/bin/env node
// Stands in for node-gyp where prebuildify calls it: the same command line, built by CMake.
// Unchanged sources are not built again.
const arch =
  process.argv.find((arg) => arg.startsWith('--arch='))?.slice('--arch='.length) ?? process.arch;
if (arch !== process.arch)
  throw new Error(
    `prebuilds are built on the machine they are for: this is ${process.arch}, not ${arch}`,
  );
process.argv.splice(2);
require('./build-native.cjs');
