#!/usr/bin/env node
// JavaScript of the package: one file for each entry point and a few shared chunks, because an import of a hundred small files
// takes three times as long. Declarations come from tsc.
const path = require('node:path');
const { buildSync } = require('esbuild');

const root = path.resolve(__dirname, '..');
const shared = { absWorkingDir: root, platform: 'node', target: 'node20', sourcemap: true, sourcesContent: false, logLevel: 'warning' };

buildSync({
  ...shared,
  entryPoints: ['lib/index.ts', 'lib/compile/index.ts', 'lib/distributed.ts', 'lib/testing/index.ts', 'lib/cli/main.ts', 'lib/mesh/rank-child.ts'],
  outbase: 'lib',
  outdir: 'dist',
  chunkNames: 'chunks/[name]-[hash]',
  bundle: true,
  splitting: true,
  format: 'esm',
  packages: 'external',
});
buildSync({ ...shared, entryPoints: ['lib/index.cts'], outfile: 'dist/index.cjs', format: 'cjs' });
