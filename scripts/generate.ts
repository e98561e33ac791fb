/**
 * Writes native/generated from the op table, and lib/core/absent-names from the names that are not
 * there. With --check, fails if what is committed differs.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { type AnyOp, allOps, snakeCase } from '../lib/core/op.js';
import '../lib/ops/index.js';
import { absentFile, absentPlaces } from './generate-absent.js';
import { contractTable } from './generate-contracts.js';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');
const banner = '// Written by `npm run generate` from lib/ops. Do not edit.\n';

/** The entries of each kernel, in the order of kernel names. */
function opsByKernel(): AnyOp[][] {
  const byKernel = new Map<string, AnyOp[]>();
  for (const op of allOps()) {
    if (op.kernel === null) continue;
    const [before] = byKernel.get(op.kernel) ?? [];
    if (before !== undefined && before.params.kernelParams.join() !== op.params.kernelParams.join())
      throw new Error(
        `${before.name} and ${op.name} share the kernel ${op.kernel} with different parameters`,
      );
    byKernel.set(op.kernel, [...(byKernel.get(op.kernel) ?? []), op]);
  }
  return [...byKernel.entries()].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, ops]) => ops);
}

function kernelTable(ops: readonly AnyOp[]): string {
  const lines = ops.map((op, id) => `SW_KERNEL(${id}, ${op.kernel})`);
  return `${banner}// SW_KERNEL(id, name): both backends define every one of these, or their link fails.\n${lines.join('\n')}\n`;
}

function paramStructs(ops: readonly AnyOp[]): string {
  const structs = ops
    .filter((op) => op.pointwise === null && op.params.kernelParams.length > 0)
    .map((op) => {
      const name = (op.kernel as string).replace(/(^|_)([a-z])/g, (_match, _bar, letter: string) =>
        letter.toUpperCase(),
      );
      return `\nstruct ${name}Params {\n${op.params.kernelParams.map((p) => `  double ${snakeCase(p)};\n`).join('')}};\n`;
    });
  return `${banner}// One struct per kernel with parameters, every field a double: integers up to 2^53 are exact, booleans are 0 or 1.\n#pragma once\n\nnamespace shardwise {\n${structs.join('')}\n}  // namespace shardwise\n`;
}

function pointwiseOps(ops: readonly AnyOp[]): string {
  const lines = ops.flatMap((op) => {
    const spec = op.pointwise;
    return spec === null
      ? []
      : [
          `SW_POINTWISE(${op.kernel}, ${spec.arity}, ${spec.classes}, ${spec.result}, ${spec.expression})`,
        ];
  });
  return `${banner}// SW_POINTWISE(name, arity, classes, result, expression)
//   classes: F = float and double, A = float, double and int64, I = int64 only. x, y, z are inputs of type T,
//   p0..p3 parameters cast to T. result: SAME = T, BOOL = bool.
${lines.join('\n')}
`;
}

function pointwiseCosts(ops: readonly AnyOp[]): string {
  const lines = ops.flatMap(({ kernel, pointwise }) =>
    pointwise === null ? [] : [`SW_POINTWISE_COST(${kernel}, ${upper(pointwise.cost)})`],
  );
  return `${banner}// SW_POINTWISE_COST(name, cost), in the order of pointwise_ops.inc; costs are those of \`PointwiseCost\` in lib/core/op.ts.\n${lines.join('\n')}\n`;
}

const upper = (word: string): string => word.slice(0, 1).toUpperCase() + word.slice(1);

const kernels = opsByKernel();
const ops = kernels.map(([op]) => op as AnyOp);
const native: Record<string, string> = {
  'kernel_table.def': kernelTable(ops),
  'op_params.h': paramStructs(ops),
  'pointwise_ops.inc': pointwiseOps(ops),
  'pointwise_costs.inc': pointwiseCosts(ops),
  'contracts.inc': banner + contractTable(kernels),
};
const files: [name: string, content: string, source: string][] = [
  ...Object.entries(native).map(([name, content]): [string, string, string] => [
    `native/generated/${name}`,
    content,
    'the op table',
  ]),
  ...absentPlaces.map((place): [string, string, string] => [
    `lib/core/absent-names/${place.file}.ts`,
    absentFile(place),
    'scripts/absent-names',
  ]),
];
let stale = 0;
for (const [name, content, source] of files) {
  const file = path.join(root, name);
  if (!process.argv.includes('--check')) writeFileSync(file, content);
  else if (readFileSync(file, 'utf8') !== content) {
    console.error(`${name} differs from ${source}: run npm run generate`);
    stale++;
  }
}
process.exit(stale === 0 ? 0 : 1);
