/**
 * Rewrites a module of esbuild's output as CommonJS. esbuild shares code between entries in modules
 * alone; and its own CommonJS reads each import through a getter at each use, which is slow in ops.
 * Here imports are constants, so an export that is assigned later is refused.
 */
const ts = require('typescript');

/**
 * @param text - a module without a top-level `await`
 * @param fileOf - the path to require for the path of an import
 * @param deferredExports - the names that a path exports if its import is deferred, else null: its
 * file is loaded when a function of it is called, or when a property of the namespace is read
 */
exports.toCommonJs = (text, fileOf, deferredExports) => {
  const source = ts.createSourceFile('module.js', text, ts.ScriptTarget.ES2022, true);
  const edits = [];
  /** The local name of each exported one: some have several. */
  const exported = new Map();
  for (const statement of source.statements) {
    if (ts.isImportDeclaration(statement) && isLate(statement)) {
      edits.push({ node: statement, replacement: '' });
      edits.push(...lateUses(source, statement));
    } else if (ts.isImportDeclaration(statement)) {
      const replacement = required(statement, fileOf, deferredExports);
      edits.push({ node: statement, replacement });
    } else if (ts.isExportDeclaration(statement)) {
      for (const { name, propertyName } of statement.exportClause.elements)
        exported.set(name.text, (propertyName ?? name).text);
      edits.push({ node: statement, replacement: '' });
    }
  }
  edits.push(...expressionEdits(source, fileOf));
  refuseAssignments(source, exported);
  const body = applied(text, edits);
  const names = [...exported].map(([name, local]) => (local === name ? name : `${name}: ${local}`));
  const hashbang = /^#!.*\n/.exec(body)?.[0] ?? '';
  return [
    `${hashbang}"use strict";`,
    ...(body.includes(MODULE_URL) ? [`const ${MODULE_URL} = ${OWN_URL};`] : []),
    ...(body.includes(DEFERRED) ? [DEFERRED_HELPERS] : []),
    withoutIndentation(body.slice(hashbang.length).trim()),
    ...(names.length > 0 ? [`module.exports = {\n  ${names.join(',\n  ')}\n};`] : []),
    '',
  ].join('\n');
};

const MODULE_URL = '__moduleUrl';
/** A bundle of modules made of this file has no file name. */
const OWN_URL =
  "typeof __filename === 'string' ? require('node:url').pathToFileURL(__filename).href : undefined";

const DEFERRED = '__deferred';
const DEFERRED_HELPERS = `\
const ${DEFERRED}Function = (load, name) =>
  Object.defineProperty((...args) => load()[name](...args), "name", { value: name });
const ${DEFERRED}Namespace = (load, names) => {
  const namespace = {};
  const fill = () => {
    const loaded = load();
    for (const name of names)
      Object.defineProperty(namespace, name, { value: loaded[name], enumerable: true });
  };
  for (const name of names)
    Object.defineProperty(namespace, name, {
      get: () => (fill(), namespace[name]),
      enumerable: true,
      configurable: true,
    });
  return namespace;
};`;

/** An import as calls of \`require\`. */
function required({ importClause, moduleSpecifier }, fileOf, deferredExports) {
  const file = JSON.stringify(fileOf(moduleSpecifier.text));
  if (importClause === undefined) return `require(${file});`;
  const { name, namedBindings } = importClause;
  const deferred = deferredExports(moduleSpecifier.text);
  const whole = (local) =>
    deferred === null
      ? `const ${local} = require(${file});`
      : `const ${local} = ${DEFERRED}Namespace(() => require(${file}), ${JSON.stringify(deferred)});`;
  if (namedBindings === undefined) return whole(name.text);
  if (ts.isNamespaceImport(namedBindings)) return whole(namedBindings.name.text);
  const names = namedBindings.elements.map((each) => ({
    local: each.name.text,
    imported: (each.propertyName ?? each.name).text,
  }));
  if (deferred === null) {
    const bindings = names.map(({ local, imported }) =>
      local === imported ? local : `${imported}: ${local}`,
    );
    return `const { ${bindings.join(', ')} } = require(${file});`;
  }
  return names
    .map(
      ({ local, imported }) =>
        `const ${local} = ${DEFERRED}Function(() => require(${file}), "${imported}");`,
    )
    .join('\n');
}

/** \`import.meta.url\`, and \`import()\` of a file whose name is known. */
function expressionEdits(source, fileOf) {
  const edits = [];
  const visit = (node) => {
    if (ts.isPropertyAccessExpression(node) && isImportMeta(node.expression))
      edits.push({ node, replacement: MODULE_URL });
    else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) {
      const [file] = node.arguments;
      if (!ts.isStringLiteral(file)) return;
      const path = JSON.stringify(fileOf(file.text));
      edits.push({ node, replacement: `Promise.resolve().then(() => require(${path}))` });
    } else ts.forEachChild(node, visit);
  };
  visit(source);
  return edits;
}

/**
 * Built-in modules that take up to some milliseconds to load, and that no program needs to begin:
 * they are required where they are used.
 */
const late = [
  ...['child_process', 'crypto', 'dns/promises', 'fs/promises', 'net'],
  ...['v8', 'vm', 'worker_threads', 'zlib'],
];
const isLate = ({ importClause, moduleSpecifier }) =>
  late.includes(moduleSpecifier.text.replace('node:', '')) &&
  importClause.namedBindings !== undefined &&
  ts.isNamedImports(importClause.namedBindings);

/** Calls of \`require\` in place of imported names. esbuild gives no other variable such a name. */
function lateUses(source, { importClause, moduleSpecifier }) {
  const imported = new Map(
    importClause.namedBindings.elements.map((each) => [
      each.name.text,
      `require("${moduleSpecifier.text}").${(each.propertyName ?? each.name).text}`,
    ]),
  );
  const edits = [];
  const visit = (node, parent) => {
    if (ts.isImportDeclaration(node)) return;
    if (ts.isIdentifier(node) && imported.has(node.text)) {
      if (ts.isShorthandPropertyAssignment(parent))
        edits.push({ node, replacement: `${node.text}: ${imported.get(node.text)}` });
      else if (ts.isNewExpression(parent) && parent.expression === node)
        edits.push({ node, replacement: `(${imported.get(node.text)})` });
      else if (parent.name !== node) edits.push({ node, replacement: imported.get(node.text) });
    }
    ts.forEachChild(node, (child) => visit(child, node));
  };
  visit(source, null);
  return edits;
}

const isImportMeta = (node) =>
  ts.isMetaProperty(node) && node.keywordToken === ts.SyntaxKind.ImportKeyword;

/** @throws Error for an assignment to an export: files that import it would not see the value */
function refuseAssignments(source, exported) {
  const names = new Map([...exported].map(([name, local]) => [local, name]));
  const visit = (node) => {
    const target =
      ts.isBinaryExpression(node) && ts.isAssignmentOperator(node.operatorToken.kind)
        ? node.left
        : ts.isPrefixUnaryExpression(node) || ts.isPostfixUnaryExpression(node)
          ? node.operator >= ts.SyntaxKind.PlusPlusToken &&
            node.operator <= ts.SyntaxKind.MinusMinusToken &&
            node.operand
          : false;
    if (target && ts.isIdentifier(target) && names.has(target.text))
      throw new Error(
        `${names.get(target.text)} is assigned after other files have imported it: export a ` +
          'function that gives the value',
      );
    ts.forEachChild(node, visit);
  };
  visit(source);
}

function applied(text, edits) {
  let end = text.length;
  const parts = [];
  for (const { node, replacement } of edits.sort((a, b) => b.node.getStart() - a.node.getStart())) {
    parts.push(text.slice(node.getEnd(), end), replacement);
    end = node.getStart();
  }
  parts.push(text.slice(0, end));
  return parts.reverse().join('');
}

/** The text with the indentation of its lines left out, a tenth of the package; templates keep theirs. */
function withoutIndentation(text) {
  const kept = [];
  const visit = (node) => {
    if (ts.isTemplateLiteralToken(node)) kept.push([node.getStart(), node.getEnd()]);
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile('module.js', text, ts.ScriptTarget.ES2022, true));
  let at = 0;
  const isKept = (offset) => {
    while (at < kept.length && kept[at][1] <= offset) at++;
    return at < kept.length && kept[at][0] < offset;
  };
  return text.replaceAll(/\n[ \t]+/g, (space, offset) => (isKept(offset) ? space : '\n'));
}
