/**
 * Bundles the modules of lib that a program imports, once for each state of lib: a process that
 * loads a few files starts in a third of the time of one that loads seven hundred.
 */
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const { bundleText } = createRequire(import.meta.url)('./bundle-text.cjs');

const here = fileURLToPath(import.meta.url);
const lib = fileURLToPath(new URL('../lib/', import.meta.url));
const DAY_MS = 24 * 3600 * 1000;

/**
 * Returns the URLs of the bundled modules by those of the modules of lib that the program, or a
 * file outside of lib that it imports, imports.
 */
export async function bundleOf(program, cache) {
  const entries = importedFromLib(program);
  if (entries.length === 0) return new Map();
  const bundles = path.join(cache, 'bundles');
  // Named like the folder of a package, by which the library knows its own frames.
  const folder = path.join(bundles, stateOfLib(), hash(entries), 'dist');
  if (!existsSync(folder)) await build(entries, folder, bundles);
  const bundled = (file) => path.join(folder, path.relative(lib, file).replace(/ts$/, 'js'));
  return new Map(
    entries.map((file) => [pathToFileURL(file).href, pathToFileURL(bundled(file)).href]),
  );
}

function importedFromLib(program) {
  const met = new Set([program]);
  for (const file of met)
    if (!file.startsWith(lib)) for (const each of importsOf(file)) met.add(each);
  return [...met].filter((file) => file.startsWith(lib)).sort();
}

/** The files that an import or export with a relative path names. */
function importsOf(file) {
  const text = readFileSync(file, 'utf8');
  return [...text.matchAll(/\b(?:from|import)\s*\(?\s*['"](\.[^'"]*)\.js['"]/g)]
    .map(([, name]) => path.resolve(file, '..', `${name}.ts`))
    .filter((each) => existsSync(each));
}

function stateOfLib() {
  const states = [here, ...filesOfLib()].map((file) => {
    const { mtimeMs, size } = statSync(file);
    return `${file} ${mtimeMs} ${size}`;
  });
  return hash(states);
}

const filesOfLib = () =>
  readdirSync(lib, { recursive: true })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => path.join(lib, name));

const hash = (lines) => createHash('sha256').update(lines.join('\n')).digest('hex').slice(0, 16);

/** Other processes may do so too: the first that is done gives its bundle. */
async function build(entryPoints, folder, bundles) {
  const { build } = await import('esbuild');
  const { outputFiles } = await build({
    entryPoints,
    outbase: lib,
    outdir: folder,
    chunkNames: 'chunks/[hash]',
    bundle: true,
    splitting: true,
    write: false,
    format: 'esm',
    platform: 'node',
    target: 'es2022',
    packages: 'external',
    plugins: [ownAddresses],
    tsconfigRaw: { compilerOptions: { target: 'es2022', verbatimModuleSyntax: true } },
  });
  removeOld(bundles);
  const made = `${folder}.${process.pid}`;
  for (const { path: file, text } of outputFiles) {
    const to = path.join(made, path.relative(folder, file));
    mkdirSync(path.dirname(to), { recursive: true });
    writeFileSync(to, bundleText(text));
  }
  try {
    renameSync(made, folder);
  } catch (error) {
    rmSync(made, { recursive: true });
    if (!existsSync(folder)) throw error;
  }
}

/** Modules keep the addresses of their sources. */
const ownAddresses = {
  name: 'own addresses',
  setup({ onLoad }) {
    const known = filesOfLib().filter((file) =>
      readFileSync(file, 'utf8').includes('import.meta.url'),
    );
    const filter = new RegExp(`[\\\\/](${known.map((file) => path.basename(file)).join('|')})$`);
    onLoad({ filter }, ({ path: file }) => ({
      contents: readFileSync(file, 'utf8').replaceAll(
        'import.meta.url',
        JSON.stringify(pathToFileURL(file).href),
      ),
      loader: 'ts',
    }));
  },
};

function removeOld(bundles) {
  if (!existsSync(bundles)) return;
  for (const each of readdirSync(bundles)) {
    const folder = path.join(bundles, each);
    if (Date.now() - statSync(folder).mtimeMs > DAY_MS)
      rmSync(folder, { recursive: true, force: true });
  }
}
