/** The options that the types of the package declare, by the name of what takes them: read with TypeScript's own compiler. */
import ts from 'typescript';

/** Names of options, by function, `Tensor.method` or `new Class`, each with the path of its namespace. */
export type DeclaredOptions = Map<string, Set<string>>;

/** Of all that an entry point exports: functions, methods of tensors, constructors. */
export function declaredOptions(entry: string): DeclaredOptions {
  const { options } = ts.getParsedCommandLineOfConfigFile('tsconfig.json', {}, { ...ts.sys, onUnRecoverableConfigFileDiagnostic: () => {} }) as ts.ParsedCommandLine;
  const program = ts.createProgram([entry], options);
  const checker = program.getTypeChecker();
  const found: DeclaredOptions = new Map();
  const module = checker.getSymbolAtLocation(program.getSourceFile(entry) as ts.SourceFile) as ts.Symbol;
  walk(checker, module, '', found, new Set());
  return found;
}

function walk(checker: ts.TypeChecker, module: ts.Symbol, path: string, found: DeclaredOptions, seen: Set<ts.Symbol>): void {
  if (seen.has(module)) return;
  seen.add(module);
  for (const exported of checker.getExportsOfModule(module)) {
    const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported;
    const name = `${path}${exported.name}`;
    if (symbol.flags & ts.SymbolFlags.ValueModule) walk(checker, symbol, `${name}.`, found, seen);
    const declaration = symbol.valueDeclaration;
    if (declaration === undefined || symbol.flags & ts.SymbolFlags.ValueModule) continue;
    const type = checker.getTypeOfSymbolAtLocation(symbol, declaration);
    note(checker, name, type.getCallSignatures(), found);
    if (!(symbol.flags & ts.SymbolFlags.Class)) continue;
    note(checker, `new ${name}`, type.getConstructSignatures(), found);
    if (exported.name === 'Tensor') {
      for (const member of checker.getDeclaredTypeOfSymbol(symbol).getProperties()) {
        note(checker, `Tensor.${member.name}`, checker.getTypeOfSymbolAtLocation(member, declaration).getCallSignatures(), found);
      }
    }
  }
}

function note(checker: ts.TypeChecker, name: string, signatures: readonly ts.Signature[], found: DeclaredOptions): void {
  for (const signature of signatures) {
    for (const parameter of signature.getParameters()) {
      const type = checker.getTypeOfSymbol(parameter);
      for (const [label, given] of elements(checker, parameter, type)) {
        if (!/options$|range$/i.test(label)) continue;
        for (const option of properties(given)) {
          const names = found.get(name) ?? new Set();
          found.set(name, names.add(option));
        }
      }
    }
  }
}

/** A parameter, or those of the tuples that a rest parameter takes. */
function elements(checker: ts.TypeChecker, parameter: ts.Symbol, type: ts.Type): [string, ts.Type][] {
  const tuples = type.isUnion() ? type.types : [type];
  if (!tuples.every((t) => checker.isTupleType(t))) return [[parameter.name, type]];
  return tuples.flatMap((tuple) => {
    const labels = ((tuple as ts.TupleTypeReference).target as ts.TupleType).labeledElementDeclarations ?? [];
    return checker.getTypeArguments(tuple as ts.TupleTypeReference).map((t, i): [string, ts.Type] => [labels[i]?.name.getText() ?? '', t]);
  });
}

/** Of objects that are options: not of classes, arrays and functions. */
function properties(type: ts.Type): string[] {
  const parts = type.isUnion() ? type.types : [type];
  return parts.flatMap((part) => {
    const isObject = (part.flags & ts.TypeFlags.Object) !== 0 || part.isIntersection();
    const isClass = part.symbol !== undefined && (part.symbol.flags & ts.SymbolFlags.Class) !== 0;
    if (!isObject || isClass || part.getCallSignatures().length > 0) return [];
    return part.getProperties().map((property) => property.name);
  });
}
