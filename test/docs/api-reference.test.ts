/**
 * Every public name of the entry points has a summary, and so has every public member of their
 * classes and interfaces: editors and the API reference (`npm run docs`) show nothing else. Read
 * from the declarations by the TypeScript compiler, which takes a tenth of typedoc's time.
 */
import assert from 'node:assert/strict';
import path from 'node:path';
import ts from 'typescript';
import { root } from './blocks.js';

const ENTRY_POINTS = [
  'index.ts',
  'distributed.ts',
  'compile/index.ts',
  'spmd/index.ts',
  'testing/index.ts',
];
const lib = path.join(root, 'lib');

/** The names without a summary, each once, with the file that declares it. */
function undocumented(): string[] {
  const files = ENTRY_POINTS.map((entry) => path.join(lib, entry));
  const config = ts.readConfigFile(path.join(root, 'tsconfig.json'), ts.sys.readFile).config;
  const { options } = ts.parseJsonConfigFileContent({ ...config, files }, ts.sys, root);
  const program = ts.createProgram(files, options);
  return missingIn(program, program.getTypeChecker());
}

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

  it('has a summary for every name and every member of its classes', () => {
    assert.deepEqual(undocumented(), []);
  });
});
