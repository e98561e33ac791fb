/**
 * Every public name of the entry points has a summary, and so has every public member of their
 * classes and interfaces: editors and the API reference (`npm run docs`) show nothing else. What
 * pages and examples call most has an `@example`. Read from the declarations by the TypeScript
 * compiler, which takes a tenth of typedoc's time.
 */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import path from 'node:path';
import ts from 'typescript';
import { blocks, ofThisCheckout, root } from './blocks.js';

const ENTRY_POINTS = [
  'index.ts',
  'distributed.ts',
  'eslint-plugin/index.ts',
  'compile/index.ts',
  'spmd/index.ts',
  'testing/index.ts',
];
const lib = path.join(root, 'lib');

/** Programs that users read: the blocks of pages, which no disk holds, and examples/. */
const pages: ReadonlyMap<string, string> = new Map(
  blocks
    .filter(({ kind }) => kind === 'ts')
    .map(({ file, code }) => [path.join(root, '.dev', 'docs', file), ofThisCheckout(code)]),
);
const examples = readdirSync(path.join(root, 'examples'), { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.ts'))
  .map((name) => path.join(root, 'examples', name));

/** The entry points, and the programs that call them. */
function programOf(): ts.Program {
  const files = [
    ...ENTRY_POINTS.map((entry) => path.join(lib, entry)),
    ...pages.keys(),
    ...examples,
  ];
  const config = ts.readConfigFile(path.join(root, 'tsconfig.json'), ts.sys.readFile).config;
  const { options } = ts.parseJsonConfigFileContent({ ...config, files }, ts.sys, root);
  const host = ts.createCompilerHost(options);
  const { getSourceFile, fileExists } = host;
  host.fileExists = (name) => pages.has(name) || fileExists(name);
  host.getSourceFile = (name, languageVersion, ...more) => {
    const text = pages.get(name);
    return text === undefined
      ? getSourceFile(name, languageVersion, ...more)
      : ts.createSourceFile(name, text, languageVersion);
  };
  return ts.createProgram(files, options, host);
}

/** What those programs call most: functions, methods and classes of lib/. */
function mostCalled(program: ts.Program, count: number): ts.Symbol[] {
  const checker = program.getTypeChecker();
  const calls = new Map<ts.Symbol, number>();
  const visit = (node: ts.Node): void => {
    if (ts.isCallExpression(node) || ts.isNewExpression(node)) {
      const { expression } = node;
      const name = ts.isPropertyAccessExpression(expression) ? expression.name : expression;
      const given = checker.getSymbolAtLocation(name);
      const symbol =
        given && given.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(given) : given;
      const file = symbol?.declarations?.[0]?.getSourceFile().fileName ?? '';
      if (symbol && file.startsWith(lib)) calls.set(symbol, (calls.get(symbol) ?? 0) + 1);
    }
    ts.forEachChild(node, visit);
  };
  for (const file of [...pages.keys(), ...examples])
    visit(program.getSourceFile(file) as ts.SourceFile);
  return [...calls]
    .sort(([, a], [, b]) => b - a)
    .slice(0, count)
    .map(([symbol]) => symbol);
}

/** The names without a summary, each once, with the file that declares it. */
function missingIn(program: ts.Program, checker: ts.TypeChecker): string[] {
  const seen = new Set<ts.Symbol>();
  const missing: string[] = [];

  function visit(name: string, given: ts.Symbol): void {
    const symbol = given.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(given) : given;
    if (seen.has(symbol)) return;
    seen.add(symbol);
    const declarations = (symbol.declarations ?? []).filter((each) =>
      each.getSourceFile().fileName.startsWith(lib),
    );
    const [first] = declarations;
    if (first === undefined || isHidden(symbol, declarations)) return;
    if (ts.isSourceFile(first)) {
      for (const each of checker.getExportsOfModule(symbol)) visit(`${name}.${each.name}`, each);
      return;
    }
    if (symbol.getDocumentationComment(checker).length === 0)
      missing.push(`${name} (${path.relative(root, first.getSourceFile().fileName)})`);
    for (const declaration of declarations.flatMap(membersOf))
      for (const member of declaration.members) visitMember(name, member);
  }

  /** Members stand in a class or an interface, or in the class that a type is another name of. */
  function membersOf(
    declaration: ts.Declaration,
  ): readonly (ts.ClassLikeDeclaration | ts.InterfaceDeclaration)[] {
    if (ts.isClassLike(declaration) || ts.isInterfaceDeclaration(declaration)) return [declaration];
    if (!ts.isTypeAliasDeclaration(declaration)) return [];
    const { symbol } = checker.getTypeAtLocation(declaration.name);
    return (symbol?.declarations ?? []).filter(
      (each) =>
        (ts.isClassLike(each) || ts.isInterfaceDeclaration(each)) &&
        each.getSourceFile().fileName.startsWith(lib),
    ) as (ts.ClassLikeDeclaration | ts.InterfaceDeclaration)[];
  }

  function visitMember(owner: string, member: ts.Node & { name?: ts.Node }): void {
    const symbol = member.name && checker.getSymbolAtLocation(member.name);
    if (symbol !== undefined && !symbol.name.startsWith('__'))
      visit(`${owner}.${symbol.name}`, symbol);
  }

  for (const entry of ENTRY_POINTS) {
    const file = program.getSourceFile(path.join(lib, entry)) as ts.SourceFile;
    const module = checker.getSymbolAtLocation(file) as ts.Symbol;
    for (const each of checker.getExportsOfModule(module)) visit(each.name, each);
  }
  return missing;
}

/** Private, protected and `@internal` names. */
function isHidden(symbol: ts.Symbol, declarations: readonly ts.Declaration[]): boolean {
  const isPrivate = declarations.some(
    (each) =>
      ts.getCombinedModifierFlags(each) & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected) ||
      (ts.isClassElement(each) && each.name !== undefined && ts.isPrivateIdentifier(each.name)),
  );
  return isPrivate || symbol.getJsDocTags().some((tag) => tag.name === 'internal');
}

describe('the public API', function () {
  this.timeout(60_000);

  let program: ts.Program;
  before(() => {
    program = programOf();
  });

  it('has a summary for every name and every member of its classes', () => {
    assert.deepEqual(missingIn(program, program.getTypeChecker()), []);
  });

  it('has an example for each of the 60 calls that pages and examples make most', () => {
    const called = mostCalled(program, 60);
    assert.equal(called.length, 60);
    const without = called.filter((symbol) =>
      symbol.getJsDocTags(program.getTypeChecker()).every(({ name }) => name !== 'example'),
    );
    assert.deepEqual(
      without.map(({ name }) => name),
      [],
    );
  });
});
