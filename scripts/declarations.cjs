#!/usr/bin/env node
/**
 * Writes the declarations of the package below `dist/types`: what the entry points reach, without
 * `@internal` members. In classes they stay as private names without types, which tsc's
 * `stripInternal` cannot do: with it a class without its constructor has one without arguments, and
 * a subclass may reuse a name that it cannot see. Nothing is rolled up, because the methods of ops
 * merge into Tensor by `declare module`.
 *
 * They are those of CommonJS, as the library is: a file in CommonJS may not take types from a
 * module, and a module may take them from CommonJS. So both kinds have the same Tensor.
 */
const path = require('node:path');
const { mkdirSync, readFileSync, writeFileSync } = require('node:fs');
const ts = require('typescript');
const { prune } = require('./prune-declarations.cjs');

const root = path.resolve(__dirname, '..');
const { factory, SyntaxKind } = ts;

function main() {
  const { fileNames, options } = configuration();
  const program = ts.createProgram(fileNames, options);
  check(ts.getPreEmitDiagnostics(program));
  const files = new Map();
  const emitted = program.emit(
    undefined,
    (file, text) => files.set(path.resolve(file), text),
    undefined,
    true,
    { afterDeclarations: [(context) => publicOnly(program.getTypeChecker(), context)] },
  );
  check(emitted.diagnostics);
  // a declaration is no source: tsc emits nothing for it
  const addon = path.join('native', 'addon.d.ts');
  files.set(path.join(options.outDir, addon), readFileSync(path.join(root, 'lib', addon), 'utf8'));
  const entries = entriesOf(options.outDir);
  prune(files, [...entries.keys()]);
  files.set(path.join(options.outDir, 'package.json'), '{ "type": "commonjs" }\n');
  for (const [inner, outer] of entries) {
    const target = path.relative(path.dirname(outer), inner).replace(/\.d\.ts$/, '.js');
    const from = target.startsWith('.') ? target : `./${target}`;
    const hasDefault = /^export default /m.test(files.get(inner));
    const all = `export * from '${from}';\n`;
    const text = hasDefault ? `${all}export { default } from '${from}';\n` : all;
    for (const kind of ['ts', 'cts']) files.set(outer.replace(/ts$/, kind), text);
  }
  for (const [file, text] of files) {
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, text);
  }
}

function configuration() {
  const host = { ...ts.sys, onUnRecoverableConfigFileDiagnostic: (found) => check([found]) };
  return ts.getParsedCommandLineOfConfigFile(path.join(root, 'tsconfig.build.json'), {}, host);
}

function check(diagnostics) {
  if (diagnostics.length === 0) return;
  const host = {
    getCurrentDirectory: () => root,
    getNewLine: () => '\n',
    getCanonicalFileName: (file) => file,
  };
  process.stderr.write(ts.formatDiagnostics(diagnostics, host));
  process.exit(1);
}

/** A transformer of the declarations of a file. */
function publicOnly(checker, context) {
  const visit = (given) => {
    const node = ts.visitEachChild(given, visit, context);
    if (ts.isClassDeclaration(node)) return publicClass(node, checker);
    if (ts.isInterfaceDeclaration(node)) return publicInterface(node);
    return ts.isTypeLiteralNode(node)
      ? factory.updateTypeLiteralNode(node, withoutInternal(node.members))
      : node;
  };
  return (file) => ts.visitEachChild(file, visit, context);
}

const isInternal = (node) =>
  ts.getJSDocTags(ts.getOriginalNode(node)).some((tag) => tag.tagName.text === 'internal');

const withoutInternal = (members) => members.filter((member) => !isInternal(member));

const publicInterface = (node) =>
  factory.updateInterfaceDeclaration(
    node,
    node.modifiers,
    node.name,
    node.typeParameters,
    node.heritageClauses,
    withoutInternal(node.members),
  );

function publicClass(node, checker) {
  const type = checker.getTypeAtLocation(ts.getOriginalNode(node));
  const hidden = new Set();
  const members = node.members.flatMap((member) => {
    if (ts.isConstructorDeclaration(member))
      return [isInternal(member) ? hiddenConstructor() : member];
    if (member.name === undefined || !ts.isIdentifier(member.name))
      return isInternal(member) ? [] : [member]; // no subclass reuses the name of a symbol
    const { text } = member.name;
    const inBases = hiddenInBases(type, text);
    if (!(inBases ?? isInternal(member))) return [member];
    if (inBases || hidden.has(text)) return []; // there once: a base, an accessor or an overload
    hidden.add(text);
    return [hiddenMember(member)];
  });
  return factory.updateClassDeclaration(
    node,
    node.modifiers,
    node.name,
    node.typeParameters,
    publicBases(node, checker),
    members,
  );
}

/** The base class and the public interfaces of a class. */
function publicBases({ heritageClauses = [] }, checker) {
  const isPublic = ({ expression }) => {
    const named = checker.getSymbolAtLocation(ts.getOriginalNode(expression));
    const isImported = named !== undefined && named.flags & ts.SymbolFlags.Alias;
    const symbol = isImported ? checker.getAliasedSymbol(named) : named;
    return !(symbol?.declarations ?? []).some(isInternal);
  };
  return heritageClauses.flatMap((clause) => {
    const types = clause.types.filter(isPublic);
    return types.length > 0 ? [factory.updateHeritageClause(clause, types)] : [];
  });
}

/** Whether the base that declared a name first hides it; undefined if no base has it. */
function hiddenInBases(type, name) {
  for (const base of type.getBaseTypes() ?? []) {
    const symbol = base.getProperty(name);
    if (symbol === undefined) continue;
    return hiddenInBases(base, name) ?? (symbol.declarations ?? []).some(isInternal);
  }
  return undefined;
}

/** Protected: the classes of the package that extend it are declared too. */
const hiddenConstructor = () =>
  factory.createConstructorDeclaration(
    [factory.createModifier(SyntaxKind.ProtectedKeyword)],
    [],
    undefined,
  );

function hiddenMember({ name, modifiers = [] }) {
  const isStatic = modifiers.some(({ kind }) => kind === SyntaxKind.StaticKeyword);
  const kinds = [SyntaxKind.PrivateKeyword, ...(isStatic ? [SyntaxKind.StaticKeyword] : [])];
  // all new, because nodes of the source bring their comments along
  return factory.createPropertyDeclaration(kinds.map(factory.createModifier), name.text);
}

/** The declarations of each entry in `types`, with those that package.json names for modules. */
function entriesOf(types) {
  const { exports } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'));
  const named = Object.values(exports).flatMap((entry) => entry.import?.types ?? []);
  const dist = path.join(root, 'dist');
  return new Map(
    named
      .map((file) => path.join(root, file))
      .map((file) => [path.join(types, path.relative(dist, file)), file]),
  );
}

main();
