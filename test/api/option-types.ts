/**
 * The options that the types of the package declare, by function, read with TypeScript's compiler.
 */
import ts from 'typescript';

/**
 * Names of options, by function, `Tensor.method` or `new Class`, each with the path of its
 * namespace.
 */
export type DeclaredOptions = Map<string, Set<string>>;

/** Entry points and the prefix of their names. */
const prefixes = {
  'lib/index.ts': '',
  'lib/distributed.ts': 'distributed.',
  'lib/compile/index.ts': 'compile.',
  'lib/spmd/index.ts': 'spmd.',
  'lib/data/index.ts': 'data.',
  'lib/testing/index.ts': 'testing.',
  'lib/train/index.ts': 'train.',
};
type Entry = keyof typeof prefixes;

/** Visited symbols, so that an inherited method counts once. */
type Seen = Set<ts.Symbol | ts.Declaration>;

/**
 * The options of all exports of the entry points: functions, constructors, and methods by the class
 * that declares them.
 */
export function declaredOptions(): DeclaredOptions {
  const entries = Object.keys(prefixes) as Entry[];
  const { options } = ts.getParsedCommandLineOfConfigFile(
    'tsconfig.json',
    {},
    { ...ts.sys, onUnRecoverableConfigFileDiagnostic: () => {} },
  ) as ts.ParsedCommandLine;
  const program = ts.createProgram(entries, options);
  const checker = program.getTypeChecker();
  const found: DeclaredOptions = new Map();
  const seen: Seen = new Set();
  for (const entry of entries) {
    const module = checker.getSymbolAtLocation(
      program.getSourceFile(entry) as ts.SourceFile,
    ) as ts.Symbol;
    walk(checker, module, prefixes[entry], found, seen);
  }
  return found;
}

function walk(
  checker: ts.TypeChecker,
  module: ts.Symbol,
  path: string,
  found: DeclaredOptions,
  seen: Seen,
): void {
  if (seen.has(module)) return;
  seen.add(module);
  for (const exported of checker.getExportsOfModule(module)) {
    const symbol =
      exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported;
    const name = `${path}${exported.name}`;
    if (symbol.flags & ts.SymbolFlags.ValueModule) walk(checker, symbol, `${name}.`, found, seen);
    const declaration = symbol.valueDeclaration;
    if (declaration === undefined || symbol.flags & ts.SymbolFlags.ValueModule) continue;
    const type = checker.getTypeOfSymbolAtLocation(symbol, declaration);
    note(checker, name, type.getCallSignatures(), found);
    if (
      symbol.flags & ts.SymbolFlags.Class &&
      type
        .getConstructSignatures()
        .some((made) => made.declaration === undefined || isPublic(made.declaration))
    )
      note(checker, `new ${name}`, type.getConstructSignatures(), found);
    members(checker, type, () => name, found, seen);
    for (const made of type.getConstructSignatures())
      members(checker, made.getReturnType(), (owner) => owner, found, seen);
  }
}

/** The functions of a namespace, of a class or of its instances that this library declares. */
function members(
  checker: ts.TypeChecker,
  type: ts.Type,
  called: (owner: string) => string,
  found: DeclaredOptions,
  seen: Seen,
): void {
  for (const member of type.getProperties()) {
    const [declaration] = member.declarations ?? [];
    if (declaration === undefined || seen.has(declaration) || !isPublic(declaration)) continue;
    seen.add(declaration);
    const { parent } = declaration;
    const owner =
      (ts.isClassLike(parent) || ts.isInterfaceDeclaration(parent)) && parent.name !== undefined
        ? parent.name.text
        : '';
    note(
      checker,
      `${called(owner)}.${member.name}`,
      checker.getTypeOfSymbolAtLocation(member, declaration).getCallSignatures(),
      found,
    );
  }
}

function isPublic(declaration: ts.Declaration): boolean {
  if (
    !declaration.getSourceFile().fileName.includes('/lib/') ||
    declaration.getSourceFile().isDeclarationFile
  )
    return false;
  const hidden =
    ts.getCombinedModifierFlags(declaration) &
    (ts.ModifierFlags.Private | ts.ModifierFlags.Protected);
  return (
    hidden === 0 && !ts.getJSDocTags(declaration).some((tag) => tag.tagName.text === 'internal')
  );
}

function note(
  checker: ts.TypeChecker,
  name: string,
  signatures: readonly ts.Signature[],
  found: DeclaredOptions,
): void {
  for (const signature of signatures) {
    for (const parameter of signature.getParameters()) {
      const type = checker.getTypeOfSymbol(parameter);
      for (const [label, given] of elements(checker, parameter, type)) {
        // the last: an object that is taken apart where it is declared
        if (!/options$|range$|hooks$|^__\d+$/i.test(label)) continue;
        for (const option of properties(given)) {
          const names = found.get(name) ?? new Set();
          found.set(name, names.add(option));
        }
      }
    }
  }
}

/** A parameter, or the elements of the tuples of a rest parameter. */
function elements(
  checker: ts.TypeChecker,
  parameter: ts.Symbol,
  type: ts.Type,
): [string, ts.Type][] {
  const tuples = type.isUnion() ? type.types : [type];
  if (!tuples.every((t) => checker.isTupleType(t))) return [[parameter.name, type]];
  return tuples.flatMap((tuple) => {
    const labels =
      ((tuple as ts.TupleTypeReference).target as ts.TupleType).labeledElementDeclarations ?? [];
    return checker
      .getTypeArguments(tuple as ts.TupleTypeReference)
      .map((t, i): [string, ts.Type] => [labels[i]?.name.getText() ?? '', t]);
  });
}

/** The properties of option objects; not of classes, arrays and functions. */
function properties(type: ts.Type): string[] {
  const parts = type.isUnion() ? type.types : [type];
  return parts.flatMap((part) => {
    const isObject = (part.flags & ts.TypeFlags.Object) !== 0 || part.isIntersection();
    const isClass = part.symbol !== undefined && (part.symbol.flags & ts.SymbolFlags.Class) !== 0;
    if (!isObject || isClass || part.getCallSignatures().length > 0) return [];
    return part.getProperties().map((property) => property.name);
  });
}
