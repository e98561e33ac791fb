/** Scaling of the loss, so that small gradients do not vanish in float16. */
import { noGrad } from '../autograd/grad-mode.js';
import { calledAs } from '../core/call-context.js';
import { workingFor } from '../core/caller-name.js';
import { type DeviceType, deviceTypes } from '../core/device.js';
import { AmpError } from '../core/errors.js';
import { layers } from '../core/hooks.js';
import { checkFlag, checkNumber, checkOneOf, unexpected } from '../core/options.js';
import { PREPARE_LOAD } from '../core/prepare-load.js';
import { keep, scope } from '../core/scope.js';
import { gradOf } from '../core/set-grad.js';
import { type ArgumentsOf, defineArguments } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { reportCall, reportCallOutsideSteps } from '../core/unrepeatable.js';
import { valueBeside, valueOn } from '../ops/beside.js';
import { requireTensor, requireTensors } from '../ops/operand.js';
import { type Growth, ScaleFactor } from './scale-factor.js';
import { type GradScalerState, type LoadedScalerState, readScalerState } from './scaler-state.js';
import { unscaleGradients } from './unscale.js';

const scalerArguments = defineArguments(
  'GradScaler(device, initScale, growthFactor, backoffFactor, growthInterval, enabled)',
  (
    device: DeviceType = 'cuda',
    initScale = 65536,
    growthFactor = 2,
    backoffFactor = 0.5,
    growthInterval = 2000,
    enabled = true,
  ) => {
    return { device, initScale, growthFactor, backoffFactor, growthInterval, enabled };
  },
);

/** The members of an optimizer that the scaler uses. */
export interface ScalableOptimizer {
  /** The groups of parameters whose gradients are unscaled. */
  readonly paramGroups: readonly { readonly params: readonly Tensor[] }[];
  /** Takes a step, unless `foundInf` is there and not 0. */
  step(): void;
  /**
   * Whether `step` reads `foundInf`. The optimizers of the library do. For others the scaler reads
   * the value itself, and calls `step` if it is 0.
   */
  readonly _stepSupportsAmpScaling?: boolean;
  /** Set during {@link GradScaler.step}: not 0 if a gradient is not finite. */
  foundInf?: Tensor | null;
}

/** Options of {@link GradScaler}. */
export interface GradScalerOptions {
  /** The kind of device whose gradients are scaled; scaling is the same on all. */
  device?: DeviceType;
  /** The first factor. */
  initScale?: number;
  /** The factor is multiplied by this after `growthInterval` good steps. */
  growthFactor?: number;
  /** The factor is multiplied by this after a step with infinite or NaN gradients. */
  backoffFactor?: number;
  /** The number of steps without overflow after which the scale grows. */
  growthInterval?: number;
  /** False makes all methods pass values through. */
  enabled?: boolean;
}

function checkOptimizer(op: string, value: ScalableOptimizer): void {
  if (typeof value?.step !== 'function' || !Array.isArray(value.paramGroups))
    throw unexpected(op, 'optimizer', 'an optimizer', value);
}

/** What is known of an optimizer since the last update. */
interface Unscaled {
  /** 1 if a gradient of it is not finite, else 0. */
  readonly foundInf: Tensor;
  /** The capture that it is part of; a later one does not know it. */
  readonly capture: object | null;
  stepped: boolean;
}

/**
 * Multiplies the loss by a factor before backward, divides the gradients by it before the
 * optimizer's step, skips the step if they are not finite, and adapts the factor.
 *
 * Nothing is read: the factor is a tensor, and the optimizers of the library skip a step where the
 * parameters are. So `captureStep` captures steps with a scaler, and ranks of one process use it.
 * If the gradients of a rank are not finite, all ranks that share the step skip it: those of the
 * meshes of distributed parameters, and of the groups of `FullyShardedDataParallel`.
 *
 * @see PyTorch `torch.amp.GradScaler`
 * @example
 * const scaler = new amp.GradScaler({ device: 'cuda' });
 * scaler.scale(loss).backward();
 * scaler.step(optimizer);
 * scaler.update();
 */
export class GradScaler {
  private readonly enabled: boolean;
  private readonly factor: ScaleFactor;
  private growth: Growth;
  private readonly unscaled = new Map<ScalableOptimizer, Unscaled>();

  /** @throws ArgumentError for factors on the wrong side of 1 */
  constructor(...args: ArgumentsOf<typeof scalerArguments>) {
    const { device, initScale, growthFactor, backoffFactor, growthInterval, enabled } =
      scalerArguments(...args);
    checkOneOf('GradScaler', 'device', device, deviceTypes);
    checkNumber('GradScaler', 'growthFactor', growthFactor, { above: 1 });
    checkNumber('GradScaler', 'backoffFactor', backoffFactor, { above: 0, below: 1 });
    checkNumber('GradScaler', 'initScale', initScale, { above: 0 });
    checkNumber('GradScaler', 'growthInterval', growthInterval, { from: 1, whole: true });
    checkFlag('GradScaler', 'enabled', enabled);
    this.enabled = enabled;
    this.factor = new ScaleFactor(initScale, 0);
    this.growth = { growthFactor, backoffFactor, growthInterval };
  }

  /** Whether losses are scaled; false makes every method pass its input through. */
  isEnabled(): boolean {
    return this.enabled;
  }

  /** The factor; 1 when not enabled. Waits for the last update. */
  getScale(): number {
    if (!this.enabled) return 1;
    reportCall(this, 'getScale');
    const advice = 'Use `await scaler.getScaleAsync()` instead.';
    return calledAs('GradScaler.getScale', () => this.factor.read().scale, advice);
  }

  /** As {@link getScale}, without blocking, as ranks of one process need it. */
  async getScaleAsync(): Promise<number> {
    if (!this.enabled) return 1;
    reportCall(this, 'getScaleAsync');
    return this.factor.readScale();
  }

  /** The losses times the factor, in their dtype. */
  scale(outputs: Tensor): Tensor;
  scale(outputs: readonly Tensor[]): Tensor[];
  scale(outputs: Tensor | readonly Tensor[]): Tensor | Tensor[] {
    const op = 'GradScaler.scale';
    if (Array.isArray(outputs)) requireTensors(outputs, op, 'outputs');
    else requireTensor(outputs, op, 'outputs');
    if (this.enabled) reportCallOutsideSteps(this, 'scale');
    const scaled = (t: Tensor): Tensor =>
      this.enabled ? t.mul(valueBeside(this.factor.on(t.device), t)).to(t.dtype) : t;
    return workingFor(op, () =>
      Array.isArray(outputs)
        ? (outputs as readonly Tensor[]).map(scaled)
        : scaled(outputs as Tensor),
    );
  }

  /**
   * Divides the gradients by the factor, for code that reads them before the step, such as
   * clipping. At most once between updates.
   *
   * @throws AmpError if called twice, or after `step`; ArgumentError for gradients of float16
   */
  unscale_(optimizer: ScalableOptimizer): void {
    checkOptimizer('GradScaler.unscale_', optimizer);
    if (!this.enabled) return;
    reportCallOutsideSteps(this, 'unscale_');
    const before = this.unscaledOf(optimizer);
    if (before?.stepped)
      throw new AmpError('GradScaler: unscale_ was called after step(); call it before');
    if (before !== null)
      throw new AmpError(
        'GradScaler: unscale_ was already called for this optimizer since the last update()',
      );
    this.unscale(optimizer);
  }

  /** What is known of an optimizer since the last update, in this capture or outside of any. */
  private unscaledOf(optimizer: ScalableOptimizer): Unscaled | null {
    const known = this.unscaled.get(optimizer);
    return known?.capture === layers.backend.capture ? known : null;
  }

  private unscale(optimizer: ScalableOptimizer): Unscaled {
    const op = 'GradScaler.unscale_';
    checkOptimizer(op, optimizer);
    const params = optimizer.paramGroups.flatMap((group) => group.params);
    const first = params.map(gradOf).find((grad) => grad !== null) ?? (params[0] as Tensor);
    const foundInf = workingFor(op, () => {
      const scale = this.factor.on(first.device);
      return keep(noGrad(() => scope(() => unscaleGradients(params, scale))));
    });
    const made = { foundInf, capture: layers.backend.capture, stepped: false };
    this.unscaled.set(optimizer, made);
    return made;
  }

  /**
   * Unscales the gradients if that was not done, and runs `optimizer.step()`, which changes nothing
   * if one of them is infinite or NaN. Nothing is read, and hooks of the step run in both cases.
   *
   * An optimizer that is not of the library, or whose `step` is overridden, is stepped or not by a
   * value that is read here. In ranks of one process, use {@link stepAsync} for it.
   *
   * @throws AmpError if called twice between updates; DistributedError if the value would have to be
   * read and depends on ranks of this process
   */
  step(optimizer: ScalableOptimizer): void {
    const unscaled = this.beginStep(optimizer);
    if (unscaled === null || optimizer._stepSupportsAmpScaling === true)
      stepUnless(unscaled?.foundInf ?? null, optimizer);
    else {
      if (layers.backend.capture !== null) reportCall(this, 'step');
      const advice = 'Use `await scaler.stepAsync(optimizer)` instead.';
      if (calledAs('GradScaler.step', () => unscaled.foundInf.item(), advice) === 0)
        optimizer.step();
    }
  }

  /**
   * As {@link step} for optimizers that do not read `foundInf` in their `step`: waits for the value
   * without blocking, as ranks of one process need it.
   */
  async stepAsync(optimizer: ScalableOptimizer): Promise<void> {
    const unscaled = this.beginStep(optimizer);
    if (unscaled === null || optimizer._stepSupportsAmpScaling === true)
      stepUnless(unscaled?.foundInf ?? null, optimizer);
    else if ((await unscaled.foundInf.itemAsync()) === 0) optimizer.step();
  }

  /** Unscales the gradients if that was not done; null if the scaler is not enabled. */
  private beginStep(optimizer: ScalableOptimizer): Unscaled | null {
    checkOptimizer('GradScaler.step', optimizer);
    if (!this.enabled) return null;
    reportCallOutsideSteps(this, 'step');
    const before = this.unscaledOf(optimizer);
    if (before?.stepped)
      throw new AmpError(
        'GradScaler: step was already called for this optimizer since the last update()',
      );
    const unscaled = before ?? this.unscale(optimizer);
    unscaled.stepped = true;
    return unscaled;
  }

  /**
   * Adapts the factor, or sets it: down if a step was skipped, up after many good ones. Call it
   * once in an iteration, after all steps; a captured step has both.
   *
   * @throws AmpError if no gradients were unscaled since the last update
   */
  update(newScale?: number): void {
    if (!this.enabled) return;
    reportCallOutsideSteps(this, 'update');
    if (newScale !== undefined) {
      checkNumber('GradScaler.update', 'newScale', newScale, { above: 0 });
      this.factor.set(newScale);
    } else workingFor('GradScaler.update', () => this.adapt());
    this.unscaled.clear();
  }

  private adapt(): void {
    const known = [...this.unscaled.keys()].flatMap((each) => this.unscaledOf(each) ?? []);
    const [first, ...others] = known.map(({ foundInf }) => foundInf);
    if (first === undefined)
      throw new AmpError(
        'GradScaler: update was called before any step(): nothing is known of the gradients. A ' +
          'captured step calls both',
      );
    for (const name of ['growthFactor', 'backoffFactor', 'growthInterval'] as const)
      layers.backend.capture?.dependsOn(`${name} of GradScaler`, () => this.growth[name]);
    noGrad(() =>
      scope(() => {
        const found = others.reduce((a, b) => a.maximum(valueOn(b, a)), first);
        this.factor.update(found, this.growth);
      }),
    );
  }

  /** The scale and the counters under PyTorch's names; `{}` when disabled. Waits for both. */
  stateDict(): GradScalerState | Record<string, never> {
    if (!this.enabled) return {};
    reportCall(this, 'stateDict');
    const advice = 'Call `await scaler.getScaleAsync()` before it.';
    const { scale, tracker } = calledAs('GradScaler.stateDict', () => this.factor.read(), advice);
    const { growthFactor, backoffFactor, growthInterval } = this.growth;
    return {
      scale,
      growth_factor: growthFactor,
      backoff_factor: backoffFactor,
      growth_interval: growthInterval,
      _growth_tracker: tracker,
    };
  }

  /**
   * Restores the result of {@link stateDict}, or PyTorch's.
   *
   * @throws ArgumentError for the state of a scaler that was not enabled, and for values that are
   * not numbers
   */
  loadStateDict(state: LoadedScalerState): void {
    this.prepareLoad(state)();
  }

  /** @internal */
  [PREPARE_LOAD](state: LoadedScalerState): (() => void) | null {
    const isOwn = this.loadStateDict === GradScaler.prototype.loadStateDict;
    return isOwn ? this.prepareLoad(state) : null;
  }

  private prepareLoad(given: LoadedScalerState): () => void {
    if (!this.enabled) return () => {};
    reportCall(this, 'loadStateDict');
    const state = readScalerState(given);
    return () => {
      this.factor.set(state.scale, state._growth_tracker);
      this.growth = {
        growthFactor: state.growth_factor,
        backoffFactor: state.backoff_factor,
        growthInterval: state.growth_interval,
      };
    };
  }
}

/** Takes a step that changes nothing if `foundInf` is not 0. */
function stepUnless(foundInf: Tensor | null, optimizer: ScalableOptimizer): void {
  if (foundInf === null) {
    optimizer.step();
    return;
  }
  optimizer.foundInf = foundInf;
  try {
    optimizer.step();
  } finally {
    optimizer.foundInf = null;
  }
}
