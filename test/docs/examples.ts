/**
 * The `@example`s of lib/ as programs. An example leaves out what its reader sees anyway: imports,
 * the ranks of a collective, and a model with its data.
 */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import ts from 'typescript';
import * as compiling from '../../lib/compile/index.js';
import { absenceOf } from '../../lib/core/absent.js';
import * as data from '../../lib/data/index.js';
import * as distributed from '../../lib/distributed.js';
import * as main from '../../lib/index.js';
import * as spmd from '../../lib/spmd/index.js';
import * as testing from '../../lib/testing/index.js';
import * as training from '../../lib/train/index.js';
import { root } from './blocks.js';

export interface Example {
  /** The file and line of the example. */
  place: string;
  /** A program, in which `result(value, text)` stands for an expression and the comment behind it. */
  code: string;
  /** The name of a file that can hold the program. */
  file: string;
}

const namesOf = (entry: object): string[] =>
  Object.entries(entry).flatMap(([name, value]) => (absenceOf(value) === undefined ? [name] : []));

const distributedNames = namesOf(distributed);
const entries = {
  shardwise: namesOf(main),
  'shardwise/distributed': distributedNames,
  'shardwise/compile': namesOf(compiling),
  'shardwise/spmd': namesOf(spmd),
  'shardwise/data': namesOf(data),
  'shardwise/testing': namesOf(testing),
  'shardwise/train': namesOf(training),
};

/** What examples use without declaring it. */
const given: Record<string, string> = {
  assert: "import assert from 'node:assert/strict';",
  it: 'const it = async (_title: string, test: () => Promise<void>) => test();',
  spmd: "import * as spmd from 'shardwise/spmd';",
  StepModule: "import type { StepModule } from 'shardwise/spmd';",
  x: 'const x = randn([4, 8], { requiresGrad: true });',
  model: 'const model = new nn.Sequential(new nn.Linear(8, 8), new nn.Linear(8, 8));',
  loss: 'const loss = model(x).mean();',
  optimizer: 'const optimizer = new optim.AdamW(model.parameters());',
  schedule: 'const schedule = new optim.lrScheduler.StepLR(optimizer, 10);',
  step: 'const step = 1;',
  batches: 'const batches = [randn([4, 8]), randn([4, 8])];',
  mesh: "const mesh = initDeviceMesh('cpu', [2], { meshDimNames: ['tp'] });",
};

/** The program of an example. */
export function programOf(text: string): string {
  const statements = withGiven(withResults(text.replaceAll("'cuda'", "'cpu'")));
  const { used } = namesIn(statements);
  const needsRanks =
    distributedNames.some((name) => used.has(name)) &&
    !/\b(?:launch|initProcessGroup|withRanks)\(/.test(statements);
  if (needsRanks) used.add('launch');
  const imported = Object.entries(entries).map(([entry, names]) => {
    const found = names.filter((name) => used.delete(name));
    return found.length === 0 ? '' : `import { ${found.join(', ')} } from '${entry}';\n`;
  });
  return imported
    .concat('declare const result: (value: unknown, expected: string) => void;\n')
    .concat(needsRanks ? `await launch(2, async (rank) => {\n${statements}});\n` : statements)
    .concat('export {};\n')
    .join('');
}

const parsed = (text: string): ts.SourceFile =>
  ts.createSourceFile('example.mts', text, ts.ScriptTarget.ES2022, true);

/** Makes an expression with a comment behind it a call of `result`. */
function withResults(text: string): string {
  const source = parsed(text);
  const [end, checked] = source.statements.reduce<[number, string]>(
    ([from, written], statement) => {
      const comment = /^[ \t]*\/\/ (.*)/.exec(text.slice(statement.end))?.[1];
      if (!ts.isExpressionStatement(statement) || comment === undefined) return [from, written];
      const call = `result(await ${statement.expression.getText()}, ${JSON.stringify(comment)});`;
      return [statement.end, written + text.slice(from, statement.getStart()) + call];
    },
    [0, ''],
  );
  return `${checked}${text.slice(end)}\n`;
}

/** The text behind declarations of what it does not declare. */
function withGiven(text: string): string {
  const { used, declared } = namesIn(text);
  const [missing] = Object.keys(given)
    .reverse()
    .filter((name) => used.has(name) && !declared.has(name));
  return missing === undefined ? text : withGiven(`${given[missing]}\n${text}`);
}

/** The names that a program uses, and those that it declares for all its statements. */
function namesIn(text: string): { used: Set<string>; declared: Set<string> } {
  const source = parsed(text);
  const used = new Set<string>();
  const visit = (node: ts.Node): void => {
    const { parent } = node;
    const isMember = ts.isPropertyAccessExpression(parent) && parent.name === node;
    const isKey = ts.isPropertyAssignment(parent) && parent.name === node;
    if (ts.isIdentifier(node) && !isMember && !isKey) used.add(node.text);
    ts.forEachChild(node, visit);
  };
  ts.forEachChild(source, visit);
  const declared = new Set(source.statements.flatMap(declaredBy));
  return { used: new Set([...used].filter((name) => !declared.has(name))), declared };
}

function declaredBy(statement: ts.Statement): string[] {
  if (ts.isClassDeclaration(statement) || ts.isFunctionDeclaration(statement))
    return [statement.name?.text ?? ''];
  if (ts.isImportDeclaration(statement)) return importedBy(statement);
  if (!ts.isVariableStatement(statement)) return [];
  return statement.declarationList.declarations.flatMap(({ name }) =>
    ts.isIdentifier(name) ? [name.text] : name.elements.map((each) => each.getText()),
  );
}

function importedBy({ importClause }: ts.ImportDeclaration): string[] {
  const bindings = importClause?.namedBindings;
  if (importClause?.name !== undefined) return [importClause.name.text];
  if (bindings === undefined) return [];
  return ts.isNamespaceImport(bindings)
    ? [bindings.name.text]
    : bindings.elements.map(({ name }) => name.text);
}

/** The examples of a file. */
function examplesOf(file: string): Example[] {
  const text = readFileSync(path.join(root, file), 'utf8');
  if (!text.includes('@example')) return [];
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.ES2022, true);
  const tags = new Set<ts.JSDocTag>();
  const visit = (node: ts.Node): void => {
    for (const tag of ts.getJSDocTags(node)) if (tag.tagName.text === 'example') tags.add(tag);
    ts.forEachChild(node, visit);
  };
  visit(source);
  return [...tags].map((tag) => {
    const place = `${file}:${source.getLineAndCharacterOfPosition(tag.getStart()).line + 1}`;
    const code = programOf(ts.getTextOfJSDocComment(tag.comment) ?? '');
    return { place, code, file: `${place.replace(/\W/g, '-')}.mts` };
  });
}

export const examples: readonly Example[] = readdirSync(path.join(root, 'lib'), {
  recursive: true,
  encoding: 'utf8',
})
  .filter((file) => file.endsWith('.ts') && !file.endsWith('.d.ts'))
  .sort()
  .flatMap((file) => examplesOf(path.join('lib', file)));

/** A value as comments of examples write it. */
export function shown(value: unknown): string {
  if (value instanceof main.Tensor) return shown(value.tolist());
  if (ArrayBuffer.isView(value)) return shown([...(value as Float32Array)]);
  if (Array.isArray(value)) return `[${value.map(shown).join(', ')}]`;
  if (typeof value === 'number') return String(Number(value.toFixed(4)));
  return typeof value === 'string' ? `'${value}'` : String(value);
}
