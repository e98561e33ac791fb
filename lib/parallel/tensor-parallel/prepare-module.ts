/** Styles that redistribute the inputs and outputs of a module and leave its parameters alone. */
import { checkFlag, optionsOf } from '../../core/options.js';
import type { DeviceMesh } from '../../distributed/index.js';
import { Placement } from '../../dtensor/index.js';
import { ArgumentError, type nn, Tensor } from '../../index.js';
import { afterForward, beforeForward } from './distribute-module.js';
import { checkPlacement, intoLayout, type Layouts, localIf, requireTensor } from './layouts.js';
import { callable, ParallelStyle } from './parallel-style.js';

/** One placement, or one for each value; null leaves a tensor or another value as it is. */
export type LayoutList = Placement | readonly (Placement | null)[];

/** Placements by the name of an option. */
export type NamedLayouts = Readonly<Record<string, Placement | null>>;

/** Options of {@link PrepareModuleInput}. */
export interface PrepareInputOptions {
  /** The placements of plain positional arguments, one for each; null skips an argument. */
  inputLayouts?: LayoutList | null;
  /** The desired placements of positional arguments. */
  desiredInputLayouts?: LayoutList | null;
  /** The placements of plain tensors in the trailing options object, by name. */
  inputKwargLayouts?: NamedLayouts | null;
  /** The desired placements of these tensors. */
  desiredInputKwargLayouts?: NamedLayouts | null;
  /** Whether the module gets the local shards, as plain tensors. False by default. */
  useLocalOutput?: boolean;
}

/** Options of {@link PrepareModuleOutput}. */
export interface PrepareOutputOptions {
  /** The placements of plain results, one for each; null skips a result. */
  outputLayouts: LayoutList;
  /** The desired placements of positional arguments. */
  desiredOutputLayouts: LayoutList;
  /** Whether results are the local shards, as plain tensors. True by default. */
  useLocalOutput?: boolean;
}

/** Options of {@link PrepareModuleInputOutput}. */
export interface PrepareInputOutputOptions
  extends Omit<PrepareInputOptions, 'useLocalOutput'>,
    PrepareOutputOptions {
  /** Whether the module gets the local shards, as plain tensors. False by default. */
  useLocalInput?: boolean;
}

type Pairs = readonly (Layouts | null)[];

/** The layouts of a module's positional arguments, or of its results. */
function pairsOf(
  op: string,
  names: readonly [string, string],
  given: LayoutList,
  desired: LayoutList,
): Pairs {
  const [from, to] = [given, desired].map((list, i) => {
    const all = list instanceof Placement ? [list] : list;
    if (!Array.isArray(all))
      throw new ArgumentError(
        `${op}: expected ${names[i]} to be a placement or a list of placements and nulls`,
        { op, argument: names[i] },
      );
    for (const each of all) if (each !== null) checkPlacement(op, `each of ${names[i]}`, each);
    return all as readonly (Placement | null)[];
  }) as [readonly (Placement | null)[], readonly (Placement | null)[]];
  if (from.length !== to.length) {
    throw new ArgumentError(
      `${op}: expected as many ${names[1]} as ${names[0]}, got ${to.length} and ${from.length}`,
      { op, given: from.length, desired: to.length },
    );
  }
  return from.map((layout, i) =>
    layout === null ? null : { given: layout, desired: to[i] ?? null },
  );
}

/** Redistributes a module's arguments. */
class InputPreparation {
  private readonly op: string;
  private readonly positional: Pairs | null;
  private readonly named: Readonly<Record<string, Layouts>>;
  private readonly useLocal: boolean;

  constructor(op: string, options: PrepareInputOptions, useLocal: boolean) {
    const {
      inputLayouts = null,
      desiredInputLayouts = null,
      inputKwargLayouts,
      desiredInputKwargLayouts,
    } = options;
    checkFlag(op, 'useLocalOutput and useLocalInput', useLocal);
    if ((inputLayouts === null) !== (desiredInputLayouts === null)) {
      throw new ArgumentError(
        `${op}: expected both inputLayouts and desiredInputLayouts, or neither, got only ` +
          `${inputLayouts === null ? 'the latter' : 'the former'}`,
        { op },
      );
    }
    this.op = op;
    this.positional =
      inputLayouts === null || desiredInputLayouts === null
        ? null
        : pairsOf(op, ['inputLayouts', 'desiredInputLayouts'], inputLayouts, desiredInputLayouts);
    this.named = namedPairs(op, inputKwargLayouts ?? {}, desiredInputKwargLayouts ?? {});
    this.useLocal = useLocal;
  }

  run(module: nn.AnyModule, args: readonly unknown[], mesh: DeviceMesh): unknown[] {
    const names = Object.keys(this.named);
    const last = args.at(-1);
    const hasOptions =
      isOptions(last) &&
      (names.length > 0 || args.length > (this.positional?.length ?? args.length));
    const positional = hasOptions ? args.slice(0, -1) : args;
    const { positional: pairs, op } = this;
    if (pairs !== null && positional.length !== pairs.length) {
      throw new ArgumentError(
        `${op}: ${module.constructor.name} was called with ${positional.length} positional ` +
          `arguments, but inputLayouts has ${pairs.length}. Give a layout for each, or null to ` +
          'leave it as it is.',
        { op, given: positional.length, expected: pairs.length },
      );
    }
    const prepared =
      pairs === null
        ? [...positional]
        : positional.map((value, i) => this.one(value, `argument ${i}`, pairs[i] ?? null, mesh));
    return hasOptions ? [...prepared, this.namedOnes(last, mesh)] : prepared;
  }

  private namedOnes(
    options: Readonly<Record<string, unknown>>,
    mesh: DeviceMesh,
  ): Record<string, unknown> {
    return Object.fromEntries(
      Object.entries(options).map(([name, value]) => [
        name,
        this.one(value, `option "${name}"`, this.named[name] ?? null, mesh),
      ]),
    );
  }

  private one(value: unknown, name: string, layouts: Layouts | null, mesh: DeviceMesh): unknown {
    if (layouts === null || value === null || value === undefined) return value;
    requireTensor(this.op, name, value);
    return localIf(this.useLocal, intoLayout(value, mesh, layouts));
  }
}

function namedPairs(
  op: string,
  given: NamedLayouts,
  desired: NamedLayouts,
): Record<string, Layouts> {
  const pairs: Record<string, Layouts> = {};
  for (const [name, layout] of Object.entries(given)) {
    if (layout === null) continue;
    checkPlacement(op, `inputKwargLayouts.${name}`, layout);
    pairs[name] = { given: layout, desired: desired[name] ?? null };
  }
  const unknown = Object.keys(desired).find((name) => !(name in given));
  if (unknown !== undefined)
    throw new ArgumentError(
      `${op}: expected inputKwargLayouts to have "${unknown}", because ` +
        'desiredInputKwargLayouts has it',
      { op, name: unknown },
    );
  return pairs;
}

/** Whether a value is a plain object, which takes the place of PyTorch's keyword arguments. */
function isOptions(value: unknown): value is Readonly<Record<string, unknown>> {
  return (
    typeof value === 'object' &&
    value !== null &&
    !(value instanceof Tensor) &&
    Object.getPrototypeOf(value) === Object.prototype
  );
}

/** Redistributes a module's results. */
class OutputPreparation {
  private readonly op: string;
  private readonly pairs: Pairs;
  private readonly useLocal: boolean;

  constructor(
    op: string,
    { outputLayouts, desiredOutputLayouts, useLocalOutput = true }: PrepareOutputOptions,
  ) {
    checkFlag(op, 'useLocalOutput', useLocalOutput);
    this.op = op;
    this.pairs = pairsOf(
      op,
      ['outputLayouts', 'desiredOutputLayouts'],
      outputLayouts,
      desiredOutputLayouts,
    );
    this.useLocal = useLocalOutput;
  }

  run(module: nn.AnyModule, output: unknown, mesh: DeviceMesh): unknown {
    const list: readonly unknown[] = Array.isArray(output) ? output : [output];
    const { op, pairs } = this;
    if (list.length !== pairs.length) {
      throw new ArgumentError(
        `${op}: ${module.constructor.name} returned ${list.length} results, but ` +
          `outputLayouts has ${pairs.length}. Give a layout for each, or null to leave it as ` +
          'it is.',
        {
          op,
          given: list.length,
          expected: pairs.length,
        },
      );
    }
    const prepared = list.map((value, i) => {
      const layouts = pairs[i] ?? null;
      if (layouts === null) return value;
      requireTensor(op, `result ${i}`, value);
      return localIf(this.useLocal, intoLayout(value, mesh, layouts));
    });
    return Array.isArray(output) ? prepared : prepared[0];
  }
}

const inputNames = 'inputLayouts desiredInputLayouts inputKwargLayouts desiredInputKwargLayouts';
const outputNames = 'outputLayouts desiredOutputLayouts useLocalOutput';

class PrepareInput extends ParallelStyle {
  private readonly inputs: InputPreparation;

  /** @throws ArgumentError for layouts that do not fit each other */
  constructor(options: PrepareInputOptions = {}) {
    super();
    const op = 'PrepareModuleInput';
    this.inputs = new InputPreparation(
      op,
      optionsOf(op, options, `${inputNames} useLocalOutput`),
      options.useLocalOutput ?? false,
    );
  }

  override _apply(module: nn.AnyModule, mesh: DeviceMesh): void {
    beforeForward(module, (args) => this.inputs.run(module, args, mesh));
  }
}

class PrepareOutput extends ParallelStyle {
  private readonly outputs: OutputPreparation;

  /** @throws ArgumentError for layouts that do not fit each other */
  constructor(options: PrepareOutputOptions) {
    super();
    const op = 'PrepareModuleOutput';
    this.outputs = new OutputPreparation(op, optionsOf(op, options, outputNames));
  }

  override _apply(module: nn.AnyModule, mesh: DeviceMesh): void {
    afterForward(module, (output) => this.outputs.run(module, output, mesh));
  }
}

class PrepareInputOutput extends ParallelStyle {
  private readonly inputs: InputPreparation;
  private readonly outputs: OutputPreparation;

  /** @throws ArgumentError for layouts that do not fit each other */
  constructor(options: PrepareInputOutputOptions) {
    super();
    const op = 'PrepareModuleInputOutput';
    const {
      useLocalInput = false,
      useLocalOutput,
      ...layouts
    } = optionsOf(op, options, `${inputNames} ${outputNames} useLocalInput`);
    this.inputs = new InputPreparation(op, layouts, useLocalInput);
    this.outputs = new OutputPreparation(op, {
      ...layouts,
      ...(useLocalOutput === undefined ? {} : { useLocalOutput }),
    });
  }

  override _apply(module: nn.AnyModule, mesh: DeviceMesh): void {
    beforeForward(module, (args) => this.inputs.run(module, args, mesh));
    afterForward(module, (output) => this.outputs.run(module, output, mesh));
  }
}

export type PrepareModuleInput = PrepareInput;
export type PrepareModuleOutput = PrepareOutput;
export type PrepareModuleInputOutput = PrepareInputOutput;

/**
 * Redistributes a module's arguments before its `forward`: from `inputLayouts` to
 * `desiredInputLayouts`, and tensors of the trailing options object by name. The module gets
 * distributed tensors, or with `useLocalOutput` their local shards. Its layers need their own
 * styles.
 *
 * @see PyTorch `torch.distributed.tensor.parallel.PrepareModuleInput`
 */
export const PrepareModuleInput = callable('PrepareModuleInput', PrepareInput);

/**
 * Redistributes a module's results after its `forward`: from `outputLayouts` to
 * `desiredOutputLayouts`. The results are local shards, or with `useLocalOutput: false` distributed
 * tensors.
 *
 * @see PyTorch `torch.distributed.tensor.parallel.PrepareModuleOutput`
 */
export const PrepareModuleOutput = callable('PrepareModuleOutput', PrepareOutput);

/**
 * Both {@link PrepareModuleInput} and {@link PrepareModuleOutput}. `useLocalInput` is about the
 * arguments, `useLocalOutput` about the results.
 *
 * @see PyTorch `torch.distributed.tensor.parallel.PrepareModuleInputOutput`
 */
export const PrepareModuleInputOutput = callable('PrepareModuleInputOutput', PrepareInputOutput);
