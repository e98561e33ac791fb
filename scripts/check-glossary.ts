/**
 * Refuses words of the left column of the glossary in CONTRIBUTING.md. A word in backticks may not
 * be a part of an identifier in lib/ or native/, a plain phrase may not stand in a message there.
 * Phrases of the last column are allowed. `npm run check:glossary` prints each violation.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');

type Term = { readonly words: readonly string[]; readonly use: string };
export type Glossary = {
  readonly identifiers: readonly Term[];
  readonly messages: readonly Term[];
  readonly allowed: readonly (readonly string[])[];
};

/** Reads the table below the heading "Glossary". @throws Error if there is none */
export function parseGlossary(markdown: string): Glossary {
  const section = /^## Glossary\n([\s\S]*?)(?=^## |$(?![\s\S]))/m.exec(markdown)?.[1];
  if (section === undefined) throw new Error('CONTRIBUTING.md has no section "## Glossary"');
  const rows = [...section.matchAll(/^\| ([^|]+) \| ([^|]+) \|([^|]*)\|$/gm)].slice(1);
  const identifiers: Term[] = [];
  const messages: Term[] = [];
  const allowed: (readonly string[])[] = [];
  for (const [, not = '', use = '', except = ''] of rows) {
    if (/^-+$/.test(not.trim())) continue;
    for (const term of not.split(',').map((text) => text.trim())) {
      const words = wordsOf(term.replaceAll('`', ''));
      (term.startsWith('`') ? identifiers : messages).push({ words, use });
    }
    for (const phrase of except.split(',').filter((text) => text.trim() !== ''))
      allowed.push(wordsOf(phrase));
  }
  return { identifiers, messages, allowed };
}

/** What a file of TypeScript, C++ or CUDA violates, as lines to print. */
export function violations(file: string, source: string, glossary: Glossary): string[] {
  const found: string[] = [];
  const { code, messages } = separate(source);
  const report = (line: number, kind: string, text: string, term: Term) =>
    found.push(`${file}:${line}: ${kind} ${text}: "${term.words.join(' ')}" is ${term.use}`);
  code.split('\n').forEach((text, at) => {
    for (const [identifier] of text.matchAll(/[A-Za-z_]\w*/g)) {
      const term = refused(wordsOf(identifier), glossary.identifiers, glossary.allowed);
      if (term !== null) report(at + 1, 'identifier', identifier, term);
    }
  });
  for (const { line, text } of messages) {
    const term = refused(wordsOf(text), glossary.messages, glossary.allowed);
    if (term !== null) report(line, 'message', JSON.stringify(text), term);
  }
  return found;
}

/** `groupInfo_of` is group, info, of. */
function wordsOf(text: string): string[] {
  return (text.match(/[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+/g) ?? []).map((word) => word.toLowerCase());
}

function refused(
  words: readonly string[],
  terms: readonly Term[],
  allowed: readonly (readonly string[])[],
): Term | null {
  for (const term of terms) {
    for (let at = 0; at + term.words.length <= words.length; at++) {
      if (!startsAt(words, at, term.words)) continue;
      const isAllowed = allowed.some((phrase) => {
        const inside = phrase.findIndex((_, from) => startsAt(phrase, from, term.words));
        return inside >= 0 && startsAt(words, at - inside, phrase);
      });
      if (!isAllowed) return term;
    }
  }
  return null;
}

function startsAt(words: readonly string[], at: number, phrase: readonly string[]): boolean {
  return at >= 0 && phrase.every((word, i) => words[at + i] === word);
}

/** The source without comments and texts, and its texts; lines keep their numbers. */
function separate(source: string): { code: string; messages: { line: number; text: string }[] } {
  const messages: { line: number; text: string }[] = [];
  const pattern =
    /\/\/[^\n]*|\/\*[\s\S]*?\*\/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\[\s\S]|[^`\\])*`/g;
  let line = 1;
  let counted = 0;
  const code = source.replace(pattern, (match, at: number) => {
    line += source.slice(counted, at).split('\n').length - 1;
    counted = at;
    if (match.startsWith('/')) return match.replace(/[^\n]/g, ' ');
    const isInclude = /#\s*include\s*$/.test(source.slice(Math.max(0, at - 20), at));
    const isModule = /\b(from|import)\s*\(?\s*$/.test(source.slice(Math.max(0, at - 20), at));
    // The expressions of a template are code.
    const expressions = match.startsWith('`') ? match.match(/\$\{[^}]*\}/g) : null;
    if (!isInclude && !isModule)
      messages.push({ line, text: match.slice(1, -1).replace(/\$\{[^}]*\}/g, ' … ') });
    const breaks = match.replace(/[^\n]/g, '');
    return ` ${(expressions ?? []).join(' ').replaceAll('\n', ' ')} ${breaks}`;
  });
  return { code, messages };
}

/** All violations of the glossary in lib/ and native/. */
export function glossaryFindings(): string[] {
  const read = (file: string) => readFileSync(path.join(root, file), 'utf8');
  const glossary = parseGlossary(read('CONTRIBUTING.md'));
  const tracked = execFileSync('git', ['ls-files', 'lib', 'native'], {
    cwd: root,
    encoding: 'utf8',
  });
  return tracked
    .split('\n')
    .filter((file) => /\.(ts|cts|cc|h|inc|cu|cuh)$/.test(file))
    .flatMap((file) => violations(file, read(file), glossary));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const folder = process.argv[2] ?? '';
  const findings = glossaryFindings().filter((finding) => finding.startsWith(folder));
  for (const finding of findings) console.error(finding);
  if (findings.length > 0) {
    console.error(`${findings.length} words that the glossary of CONTRIBUTING.md replaces`);
    process.exitCode = 1;
  } else console.log('identifiers and messages keep the glossary');
}
