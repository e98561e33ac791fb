/** Text of the files of lib/core/absent-names, one for each namespace or class. */

import { distributed } from './absent-names/distributed.js';
import type { AbsentPlace } from './absent-names/groups.js';
import { autograd, cuda, functional, init, nn, optim, utils } from './absent-names/modules.js';
import { shardwise } from './absent-names/package.js';
import { tensor } from './absent-names/tensor.js';

/** All namespaces and classes with absent names. */
export const absentPlaces: readonly AbsentPlace[] = [
  nn,
  functional,
  init,
  utils,
  optim,
  autograd,
  cuda,
  shardwise,
  tensor,
  distributed,
];

const DOC = '/** Not there. @deprecated @hidden */';

/** Each name with the function that stands for it and its advice. */
export function absentNamesOf({ groups }: AbsentPlace) {
  return groups.flatMap(({ names, advice, isNamespace = false }) =>
    names
      .split(/\s+/)
      .map((name) => ({ name, advice, maker: isNamespace ? 'absentNamespace' : 'absent' })),
  );
}

/** The TypeScript of a place. */
export function absentFile(place: AbsentPlace): string {
  const names = absentNamesOf(place);
  const advices = [...new Set(names.map(({ advice }) => advice))];
  const constants = advices.map((advice, i) => `const a${i} = ${quoted(advice)};\n`);
  const { methodsOf } = place;
  const makers = [...new Set(names.map(({ maker }) => maker))].sort();
  const imported = methodsOf === undefined ? makers : [...makers, 'addAbsent'];
  const call = ({ name, advice, maker }: (typeof names)[number]): string =>
    `${maker}('${place.prefix}${name}', a${advices.indexOf(advice)})`;
  const head = `// Written by \`npm run generate\` from scripts/absent-names. Do not edit.\nimport { ${imported.join(', ')} } from '../absent.js';\n${methodsOf === undefined ? '' : `import { ${methodsOf.name} } from '../${methodsOf.file}.js';\n`}\n${constants.join('')}\n`;
  if (methodsOf === undefined)
    return (
      head + names.map((each) => `${DOC}\nexport const ${each.name} = ${call(each)};\n`).join('')
    );
  const { name, file } = methodsOf;
  const members = names.map((each) => `  ${DOC}\n  ${each.name}: ${call(each)},\n`).join('');
  return `${head}const absentMethods = {
${members}};
addAbsent(${name}.prototype, absentMethods);

type AbsentMethods = typeof absentMethods;

declare module '../${file}.js' {
  interface ${name} extends AbsentMethods {}
}
`;
}

const quoted = (text: string): string => (text.includes("'") ? `"${text}"` : `'${text}'`);
