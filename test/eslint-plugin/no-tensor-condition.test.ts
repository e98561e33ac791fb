/** The rule against conditions that are tensors, in eslint with the types of programs. */
import assert from 'node:assert/strict';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import * as parser from '@typescript-eslint/parser';
import { Linter } from 'eslint';
import ts from 'typescript';
import plugin from '../../lib/eslint-plugin/index.js';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..', '..');
const file = path.join(root, 'test', 'eslint-plugin', 'linted.ts');

const head = `import { ones, type Tensor } from '../../lib/index.js';
declare const a: Tensor, b: Tensor, mask: Tensor | null, other: unknown, flag: boolean;
`;

/** Each is a line; those of the first list are reported. */
const reported = [
  'if (a.eq(b)) ones([1]);',
  'while (a.lt(b)) ones([1]);',
  'do ones([1]); while (a.lt(b));',
  'for (; a.lt(b); ) ones([1]);',
  'export const c = a.eq(b) ? 1 : 2;',
  'export const d = !a.isnan();',
  'export const e = a.eq(b) && flag;',
  'if (flag || a.eq(b)) ones([1]);',
  'export const f = <T extends Tensor>(x: T) => (x ? 1 : 2);',
];
const accepted = [
  'if (a.equal(b)) ones([1]);',
  'if (a.eq(b).all().item()) ones([1]);',
  'if (mask) ones([1]);',
  'export const g = mask ?? a;',
  'export const h = flag && a;',
  'if (other) ones([1]);',
  'if (a === b) ones([1]);',
];

/** A program of this text, with the library. */
function programOf(text: string): ts.Program {
  const config = ts.readConfigFile(path.join(root, 'tsconfig.json'), ts.sys.readFile).config;
  const { options } = ts.parseJsonConfigFileContent({ ...config, files: [file] }, ts.sys, root);
  const host = ts.createCompilerHost(options);
  const { getSourceFile, fileExists } = host;
  host.fileExists = (name) => name === file || fileExists(name);
  host.getSourceFile = (name, version, ...more) =>
    name === file
      ? ts.createSourceFile(name, text, version, true)
      : getSourceFile(name, version, ...more);
  return ts.createProgram([file], options, host);
}

/** The lines that the recommended configuration reports. */
function linesReported(text: string, parserOptions: object): (number | string)[] {
  const { recommended } = plugin.configs;
  const messages = new Linter({ cwd: root }).verify(
    text,
    [{ ...recommended, languageOptions: { parser, parserOptions } }] as unknown as Linter.Config[],
    file,
  );
  return messages.map(({ ruleId, line, message }) =>
    ruleId === 'shardwise/no-tensor-condition' ? line : message,
  );
}

describe('the rule no-tensor-condition', function () {
  this.timeout(120_000); // the compiler reads the library

  it('reports each condition that is a tensor, and no other one', () => {
    const text = head + [...reported, ...accepted].join('\n');
    const lines = linesReported(text, { programs: [programOf(text)] });
    assert.deepEqual(
      lines,
      reported.map((_, i) => i + 3),
    );
  });

  it('says what to set where a file has no types', () => {
    assert.throws(() => linesReported('export {};', {}), /set the parser of typescript-eslint/);
  });
});
