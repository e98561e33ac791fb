/**
 * Leaves out of declarations what no entry point can reach: imports, exports and files whose names
 * nothing mentions. It goes by names alone, so it keeps some too many, and none too few.
 */
const path = require('node:path');
const ts = require('typescript');

/** Prunes a map of files to their texts until nothing is left to prune. */
exports.prune = (files, entries) => {
  for (let before = null; before !== sizeOf(files); ) {
    before = sizeOf(files);
    pruneStatements(files, entries);
    const reached = reachable(files, entries);
    for (const file of [...files.keys()]) if (!reached.has(file)) files.delete(file);
  }
};

const sizeOf = (files) => [...files.values()].reduce((sum, text) => sum + text.length, 0);

/** The entries, and the files that they import, directly or not. */
function reachable(files, entries) {
  const found = new Set(entries);
  for (const file of found) {
    const imports = files
      .get(file)
      .matchAll(/\b(?:from |import |import\(|require\()["'](\..*?)\.(c?)js["']/g);
    for (const [, name, c] of imports)
      found.add(path.resolve(path.dirname(file), `${name}.d.${c}ts`));
  }
  return found;
}

function pruneStatements(files, entries) {
  const sources = [...files].map(([file, text]) => parsed(file, text));
  const all = countNames(sources.flatMap(({ statements }) => [...statements]));
  const whole = exportedWhole(sources, entries);
  for (const source of sources) {
    const inFile = countNames(source.statements);
    const texts = source.statements.map((statement) => {
      if (ts.isImportDeclaration(statement)) return importOf(statement, inFile);
      const isKept = whole.has(source.fileName) || isMentioned(statement, source, all);
      return isKept ? statement.getFullText() : '';
    });
    const text = texts.join('');
    // without imports and exports it would be a script, whose names are global
    const isModule = /^(?:import|export)\b/m.test(text);
    files.set(source.fileName, `${text.trim()}\n${isModule ? '' : 'export {};\n'}`);
  }
}

const parsed = (file, text) => ts.createSourceFile(file, text, ts.ScriptTarget.ES2022, true);

/** How often each name is in some statements. */
function countNames(statements) {
  const counts = new Map();
  const visit = (node) => {
    if (ts.isIdentifier(node)) counts.set(node.text, (counts.get(node.text) ?? 0) + 1);
    ts.forEachChild(node, visit);
  };
  statements.forEach(visit);
  return counts;
}

/** The files whose exports are all public: entries, and what is exported as `*`. */
function exportedWhole(sources, entries) {
  const targets = sources.flatMap(({ fileName, text }) =>
    [...text.matchAll(/\* (?:as \w+ )?from ["'](\..*?)\.js["']/g)].map(([, name]) =>
      path.resolve(path.dirname(fileName), `${name}.d.ts`),
    ),
  );
  return new Set([...entries, ...targets]);
}

/** The text of an import, without names that its file does not mention. */
function importOf(statement, inFile) {
  const bindings = statement.importClause?.namedBindings;
  if (bindings === undefined || !ts.isNamedImports(bindings)) return statement.getFullText();
  const used = bindings.elements.filter(({ name }) => inFile.get(name.text) > 1);
  if (used.length === 0) return '';
  const names = used.map((each) => each.getText()).join(', ');
  return statement.getFullText().replace(bindings.getText(), `{ ${names} }`);
}

/** Whether other statements, of any file, have a name that a statement declares. */
function isMentioned(statement, source, all) {
  const names = declaredBy(statement);
  if (names.length === 0) return true;
  // overloads, and what is a type and a value
  const same = source.statements.filter((each) => declaredBy(each).includes(names[0]));
  const own = countNames(same);
  return names.some((name) => all.get(name) > own.get(name));
}

function declaredBy(statement) {
  if (ts.isVariableStatement(statement))
    return statement.declarationList.declarations.map(({ name }) => name.text);
  const isNamed =
    ts.isFunctionDeclaration(statement) ||
    ts.isClassDeclaration(statement) ||
    ts.isInterfaceDeclaration(statement) ||
    ts.isTypeAliasDeclaration(statement);
  return isNamed && statement.name !== undefined ? [statement.name.text] : [];
}
