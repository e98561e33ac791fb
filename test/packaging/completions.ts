/** The names that an editor offers after a dot, by the language service of TypeScript. */
import path from 'node:path';
import ts from 'typescript';

/** Types whose objects a program has in its hands, by entry point. */
const types = {
  shardwise: ['Tensor', 'nn.Module', 'nn.Linear', 'optim.Optimizer', 'optim.AdamW'],
  'shardwise/distributed': ['DTensor', 'DeviceMesh', 'ProcessGroup'],
  'shardwise/compile': ['Graph', 'Node', 'FakeTensorMode'],
};

/** A program that asks for the members of an object of each type; `entry` as a name. */
const asking = Object.entries(types)
  .map(([entry, names]) => {
    const local = entry.replace('/', '_');
    const asked = names.map((name, i) => `declare const ${local}${i}: ${local}.${name};\n`);
    return `import type * as ${local} from '${entry}';\n${asked.join('')}`;
  })
  .concat(
    Object.entries(types).flatMap(([entry, names]) =>
      names.map((name, i) => `/* ${name} */ ${entry.replace('/', '_')}${i}.;\n`),
    ),
  )
  .join('');

export interface Member {
  name: string;
  isInternal: boolean;
}

/**
 * The members offered for an object of each type, to a file of the folder. `resolved` gives what the
 * file imports for an entry point.
 */
export function offered(
  folder: string,
  resolved: (entry: string) => string = (entry) => entry,
): Record<string, Member[]> {
  const text = asking.replaceAll(/from '(.*)'/g, (_, entry: string) => `from '${resolved(entry)}'`);
  const file = path.join(folder, 'asking.mts');
  const service = serviceFor(file, text);
  const members = (name: string): Member[] => {
    const place = text.indexOf('.;', text.indexOf(`/* ${name} */ `)) + 1;
    const found = service.getCompletionsAtPosition(file, place, { includeSymbol: true });
    return (found?.entries ?? []).map(({ name, symbol }) => ({
      name,
      isInternal: symbol?.getJsDocTags().some((tag) => tag.name === 'internal') === true,
    }));
  };
  return Object.fromEntries(
    Object.values(types)
      .flat()
      .map((name) => [name, members(name)]),
  );
}

/** The language service for a file that exists only here. */
function serviceFor(file: string, text: string): ts.LanguageService {
  const options: ts.CompilerOptions = {
    module: ts.ModuleKind.NodeNext,
    target: ts.ScriptTarget.ES2022,
    lib: ['lib.es2023.d.ts', 'lib.esnext.disposable.d.ts'],
    strict: true,
    types: [],
  };
  return ts.createLanguageService({
    getCompilationSettings: () => options,
    getScriptFileNames: () => [file],
    getScriptVersion: () => '1',
    getScriptSnapshot: (name) => {
      const read = name === file ? text : ts.sys.readFile(name);
      return read === undefined ? undefined : ts.ScriptSnapshot.fromString(read);
    },
    getCurrentDirectory: () => path.dirname(file),
    getDefaultLibFileName: ts.getDefaultLibFilePath,
    fileExists: (name) => name === file || ts.sys.fileExists(name),
    readFile: ts.sys.readFile,
    directoryExists: ts.sys.directoryExists,
    realpath: (name) => ts.sys.realpath?.(name) ?? name,
  });
}
