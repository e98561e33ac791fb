#!/usr/bin/env node
/**
 * JavaScript of the package. The library is CommonJS: a file for each entry point and a few that
 * they share, because loading a hundred small files takes three times as long. An entry for
 * `import` requires the same file and exports its names, so a process has one library however it is
 * loaded. scripts/declarations.cjs writes the types.
 */
const path = require('node:path');
const { chmodSync, mkdirSync, writeFileSync } = require('node:fs');
const { build, buildSync } = require('esbuild');
const { bundleText } = require('./bundle-text.cjs');
const { toCommonJs } = require('./to-commonjs.cjs');

const root = path.resolve(__dirname, '..');
const dist = path.join(root, 'dist');
const shared = {
  absWorkingDir: root,
  platform: 'node',
  target: 'node20',
  logLevel: 'warning',
  bundle: true,
  packages: 'external',
  minifySyntax: true,
};
const first = 'index';
const entries = [
  'compile/index',
  'data/index',
  'distributed',
  'spmd/index',
  'testing/index',
  'train/index',
];
/** Has nothing of the library. */
const plugin = 'eslint-plugin/index';
const command = 'cli/main';
/** The program of a worker thread, which shares files with the library. */
const worker = 'data/batch-worker';
/** Loaded by the process of a rank before its program, without the library. */
const preload = 'distributed/launch/worker-preload';
/**
 * Modules that `lib/index.ts` and `lib/runtime.ts` import and that a program may not need, or not at
 * its start: half of the code.
 */
const deferred = [
  'amp/index',
  'library/index',
  'nn/index',
  'optim/index',
  'compile/compile',
  'compile/compiler',
  'compile/inductor',
  'checkpoint/save',
  'checkpoint/training-checkpoint',
  'profiler/index',
];
const deferring = ['lib/index.ts', 'lib/runtime.ts'].map((file) => path.join(root, file));

/** Begins the import of a deferred module, and the path of an entry that imports the first one. */
const [DEFERRED, AFTER] = ['deferred:', 'after first:'];

async function main() {
  const { outputFiles, metafile } = await build({
    ...shared,
    entryPoints: [
      ...[first, plugin, command, worker].map((name) => ({ in: `lib/${name}.ts`, out: name })),
      ...[...entries, ...deferred].map((name) => ({ in: `${AFTER}${name}`, out: name })),
    ],
    outdir: 'dist',
    chunkNames: 'chunks/[name]-[hash]',
    splitting: true,
    format: 'esm',
    plugins: [order],
    metafile: true,
    write: false,
  });
  const exportsOf = (name) => metafile.outputs[`dist/${name}.js`].exports;
  for (const { path: file, text } of outputFiles) {
    const fileOf = (imported) => requiredPath(path.dirname(file), imported);
    const namesOf = (imported) =>
      imported.startsWith(DEFERRED) ? exportsOf(imported.slice(DEFERRED.length)) : null;
    // The bundle keeps names and line breaks, and its sources are not in the package: there are no maps.
    const named = bundleText(text.replace(/^\/\/ lib\/.*\n/gm, '')); // the files that code is from
    write(commonJs(file), toCommonJs(named, fileOf, namesOf));
  }
  for (const name of [first, plugin, ...entries])
    write(path.join(dist, `${name}.js`), moduleOf(name, exportsOf(name)));
  write(path.join(dist, `${command}.js`), moduleOf(command, [], '#!/usr/bin/env node\n'));
  chmodSync(path.join(dist, `${command}.js`), 0o755);
  write(path.join(dist, `${worker}.js`), moduleOf(worker, []));
  buildSync({
    ...shared,
    entryPoints: [`lib/${preload}.ts`],
    outbase: 'lib',
    outdir: 'dist',
    format: 'esm',
  });
}

/**
 * Leaves the imports of {@link deferred} modules to toCommonJs, by names of their own. The other
 * entries import the first one: what they share with it is one file, not a file for each set
 * of entries.
 */
const order = {
  name: 'order',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^\.\// }, ({ importer, path: imported }) => {
      const file = path.join(path.dirname(importer), imported).replace(/\.js$/, '');
      const name = path.relative(path.join(root, 'lib'), file);
      return deferring.includes(importer) && deferred.includes(name)
        ? { path: `${DEFERRED}${name}`, external: true }
        : undefined;
    });
    onResolve({ filter: new RegExp(`^${AFTER}`) }, ({ path: name }) => ({
      path: name.slice(AFTER.length),
      namespace: AFTER,
    }));
    onLoad({ filter: /.*/, namespace: AFTER }, ({ path: name }) => ({
      contents: `import './${first}.ts'; export * from './${name}.ts';`,
      resolveDir: path.join(root, 'lib'),
    }));
  },
};

const commonJs = (file) => file.replace(/\.js$/, '.cjs');

/** The path of an import from a folder of the package. Packages and built-in modules keep theirs. */
function requiredPath(folder, imported) {
  if (imported.startsWith('.')) return commonJs(imported);
  if (!imported.startsWith(DEFERRED)) return imported;
  const file = path.join(dist, `${imported.slice(DEFERRED.length)}.cjs`);
  const relative = path.relative(folder, file);
  return relative.startsWith('.') ? relative : `./${relative}`;
}

/** A module that exports what a file in CommonJS does. */
function moduleOf(name, names, hashbang = '') {
  const file = `./${path.basename(name)}.cjs`;
  const load = `requireLibrary(createRequire(import.meta.url), ${JSON.stringify(file)})`;
  const contents = [
    "import { createRequire } from 'node:module';",
    "import { requireLibrary } from './lib/native/require-library.ts';",
    ...(names.length === 0
      ? [`${load};`]
      : [
          `const { ${names.map((each, i) => `${each}: _${i}`).join(', ')} } = ${load};`,
          `export { ${names.map((each, i) => `_${i} as ${each}`).join(', ')} };`,
        ]),
  ].join('\n');
  const options = { ...shared, format: 'esm', write: false };
  const { outputFiles } = buildSync({ ...options, stdin: { contents, resolveDir: root } });
  return hashbang + outputFiles[0].text;
}

function write(file, text) {
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, text);
}

main();
