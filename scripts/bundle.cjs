#!/usr/bin/env node
// JavaScript of the package: one file for each entry point and a few shared chunks, because an
// import of a hundred small files takes three times as long. scripts/declarations.cjs writes the types.
const path = require('node:path');
const { readdirSync, readFileSync, writeFileSync } = require('node:fs');
const { buildSync } = require('esbuild');
const { nameClasses } = require('./class-names.cjs');

const root = path.resolve(__dirname, '..');
const shared = {
  absWorkingDir: root,
  platform: 'node',
  target: 'node20',
  logLevel: 'warning',
};

buildSync({
  ...shared,
  entryPoints: [
    'lib/index.ts',
    'lib/compile/index.ts',
    'lib/data/index.ts',
    'lib/data/batch-worker.ts',
    'lib/distributed.ts',
    'lib/spmd/index.ts',
    'lib/testing/index.ts',
    'lib/train/index.ts',
    'lib/cli/main.ts',
    'lib/distributed/launch/worker-preload.ts',
  ],
  outbase: 'lib',
  outdir: 'dist',
  chunkNames: 'chunks/[name]-[hash]',
  bundle: true,
  splitting: true,
  format: 'esm',
  packages: 'external',
  minifySyntax: true,
});
// The bundle keeps names and line breaks, and its sources are not in the package: there are no maps.
for (const file of readdirSync(path.join(root, 'dist'), { recursive: true }).filter((name) =>
  name.endsWith('.js'),
)) {
  const text = readFileSync(path.join(root, 'dist', file), 'utf8');
  const named = nameClasses(text.replace(/^\/\/ lib\/.*\n/gm, '')); // the files that code is from
  if (named !== text) writeFileSync(path.join(root, 'dist', file), named);
}
buildSync({
  ...shared,
  entryPoints: [
    'index',
    'compile/index',
    'data/index',
    'distributed',
    'spmd/index',
    'testing/index',
    'train/index',
  ].map((entry) => `lib/${entry}.cts`),
  outbase: 'lib',
  outdir: 'dist',
  outExtension: { '.js': '.cjs' },
  format: 'cjs',
});
