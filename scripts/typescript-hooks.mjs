/**
 * Hooks of Node's module loader: resolve an import of `x.js` to `x.ts`, and compile TypeScript once
 * for each change of a file.
 */
import { existsSync, mkdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = fileURLToPath(import.meta.url);
const typescript = /\.m?ts$/;
/** Anew after a change of these hooks. */
const cache = path.resolve(here, '..', '..', 'build', 'typescript', String(statSync(here).mtimeMs));

const lib = new URL('../lib/', import.meta.url).href;
/** URLs of bundled modules of lib by those of their sources, where the process runs a program. */
let bundled = new Map();

export async function initialize(program) {
  if (program === null) return;
  const { bundleOf } = await import('./typescript-bundle.mjs');
  bundled = await bundleOf(program, cache);
}

export function resolve(specifier, context, next) {
  if (
    specifier.startsWith('.') &&
    specifier.endsWith('.js') &&
    typescript.test(context.parentURL ?? '')
  ) {
    const url = new URL(specifier.replace(/js$/, 'ts'), context.parentURL);
    if (existsSync(url)) return found(url.href);
  }
  return bundled.has(specifier) ? found(specifier) : next(specifier, context);
}

function found(url) {
  const known = bundled.get(url);
  if (known === undefined && bundled.size > 0 && url.startsWith(lib))
    throw new Error(
      `${url} would be a second copy beside the bundle of the library: import it by a relative ` +
        'path in the program, or set SHARDWISE_TEST_BUNDLES=off',
    );
  return { url: known ?? url, format: 'module', shortCircuit: true };
}

export async function load(url, context, next) {
  if (!url.startsWith('file:') || !typescript.test(url)) return next(url, context);
  return { format: 'module', source: await compiled(fileURLToPath(url)), shortCircuit: true };
}

/** What was kept ends with the state of the file that it was made of. */
async function compiled(file) {
  const { mtimeMs, size } = statSync(file);
  const state = `\n// ${mtimeMs} ${size}\n`;
  const kept = path.join(cache, `${file}.js`);
  const known = existsSync(kept) ? readFileSync(kept, 'utf8') : '';
  return known.endsWith(state) ? known : keep(kept, (await compile(file)) + state);
}

async function compile(file) {
  const { transformSync } = await import('esbuild');
  const { code } = transformSync(readFileSync(file, 'utf8'), {
    sourcefile: file,
    loader: 'ts',
    format: 'esm',
    target: 'es2022',
    sourcemap: 'inline',
    sourcesContent: false,
    tsconfigRaw: { compilerOptions: { target: 'es2022', verbatimModuleSyntax: true } },
  });
  return code;
}

/** At once, since other processes may read it. */
function keep(file, text) {
  mkdirSync(path.dirname(file), { recursive: true });
  const made = `${file}.${process.pid}`;
  writeFileSync(made, text);
  renameSync(made, file);
  return text;
}
