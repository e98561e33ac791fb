/** An editor shows the names of the arguments of a call and of its options. */
import assert from 'node:assert/strict';
import ts from 'typescript';

const file = 'test/api/edited.ts';

/** An editor on a file of this text, with the cursor at the `|`. */
function edited(call: string): { service: ts.LanguageService; at: number } {
  const code = `import { ones } from '../../lib/index.js';\nconst x = ones([2]);\n${call}`;
  const at = code.indexOf('|');
  const text = code.replace('|', '');
  const { options } = ts.getParsedCommandLineOfConfigFile(
    'tsconfig.json',
    {},
    { ...ts.sys, onUnRecoverableConfigFileDiagnostic: () => {} },
  ) as ts.ParsedCommandLine;
  const host: ts.LanguageServiceHost = {
    getScriptFileNames: () => [file],
    getScriptVersion: (name) => (name === file ? call : '1'),
    getScriptSnapshot: (name) => {
      const content = name === file ? text : ts.sys.readFile(name);
      return content === undefined ? undefined : ts.ScriptSnapshot.fromString(content);
    },
    getCurrentDirectory: () => process.cwd(),
    getCompilationSettings: () => options,
    getDefaultLibFileName: ts.getDefaultLibFilePath,
    fileExists: (name) => name === file || ts.sys.fileExists(name),
    readFile: (name) => (name === file ? text : ts.sys.readFile(name)),
  };
  return { service: ts.createLanguageService(host, registry), at };
}

/** Shares the parsed files of the library among editors. */
const registry = ts.createDocumentRegistry();

function optionsOffered(call: string): string[] {
  const { service, at } = edited(call);
  return (service.getCompletionsAtPosition(file, at, {})?.entries ?? []).map(({ name }) => name);
}

function parametersShown(call: string): string[][] {
  const { service, at } = edited(call);
  return (service.getSignatureHelpItems(file, at, {})?.items ?? []).map(({ parameters }) =>
    parameters.map(({ name }) => name),
  );
}

function errorsShown(call: string): string[] {
  const { service } = edited(call);
  return service
    .getSemanticDiagnostics(file)
    .map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n'));
}

describe('an editor', function () {
  this.timeout(180_000); // TypeScript reads the whole library

  it('shows names for the arguments of a call', () => {
    assert.deepEqual(parametersShown('x.sum(|'), [
      ['options'],
      ['dim', 'options'],
      ['dim', 'keepdim', 'options'],
    ]);
  });

  it('shows the names of the arguments of a forward, in every call of its module', () => {
    const model =
      "import { nn, type Tensor } from '../../lib/index.js';\n" +
      'class Masked extends nn.Module<[x: Tensor, mask: Tensor, options?: { scale?: number }]> {\n' +
      '  forward(x: Tensor, mask: Tensor) { return x.mul(mask); }\n}\n' +
      'const model = new Masked();\n';
    assert.deepEqual(parametersShown(`${model}model(|`), [['x', 'mask', 'options']]);
    assert.deepEqual(optionsOffered(`${model}model(x, x, { | })`), ['scale']);
    assert.deepEqual(parametersShown(`${model}new nn.ModuleList([model]).at(0)(|`), [
      ['x', 'mask', 'options'],
    ]);
  });

  it('offers the options that are not given by position', () => {
    assert.deepEqual(optionsOffered('x.sum({ | })'), ['dim', 'dtype', 'keepdim']);
    assert.deepEqual(optionsOffered('x.sum(1, { | })'), ['dtype', 'keepdim']);
    assert.deepEqual(optionsOffered('x.topk(2, { | })'), ['dim', 'largest', 'sorted']);
  });

  it('says of a name that is not there what to use instead, and strikes it out', () => {
    const module = "import { nn } from '../../lib/index.js';\n";
    assert.match(
      errorsShown(`${module}new nn.Conv2d(1, 2, 3);`)[0] ?? '',
      /nn\.Conv2d is not there/,
    );
    assert.match(
      errorsShown('x.numpy();')[0] ?? '',
      /Tensor\.numpy is not there: await x\.read\(\)/,
    );
    assert.match(errorsShown('x[0]?.item();')[0] ?? '', /use x\.select\(0, i\)/);
    const { service, at } = edited('x.|');
    const { entries = [] } = service.getCompletionsAtPosition(file, at, {}) ?? {};
    const modifiers = (name: string) =>
      entries.find((entry) => entry.name === name)?.kindModifiers ?? '';
    assert.match(modifiers('numpy'), /deprecated/);
    assert.doesNotMatch(modifiers('tolist'), /deprecated/);
  });
});
