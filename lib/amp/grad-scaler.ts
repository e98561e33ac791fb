/** Scaling of the loss, so that small gradients do not vanish in float16. */
import { noGrad } from '../autograd/grad-mode.js';
import { type DeviceType, deviceTypes } from '../core/device.js';
import { float16 } from '../core/dtype.js';
import { AmpError, ArgumentError } from '../core/errors.js';
import { checkFlag, checkNumber, checkOneOf, optionsOf, unexpected } from '../core/options.js';
import { PREPARE_LOAD } from '../core/prepare-load.js';
import { gradOf } from '../core/set-grad.js';
import { type ArgumentsOf, defineArguments } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { reportCall } from '../core/unrepeatable.js';
import { requireTensor, requireTensors } from '../ops/operand.js';

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
  readonly paramGroups: readonly { readonly params: readonly Tensor[] }[];
  step(): void;
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

/** State of a scaler, in PyTorch's form and with its names; empty when it is not enabled. */
export interface GradScalerState {
  /** The factor of the loss. */
  scale: number;
  /** The factor by which the scale grows. */
  growth_factor: number;
  /** The factor by which the scale shrinks after an overflow. */
  backoff_factor: number;
  /** The number of steps without overflow after which the scale grows. */
  growth_interval: number;
  /** The number of steps since the last overflow or growth. */
  _growth_tracker: number;
}

/** The state that earlier versions saved. */
export interface EarlierGradScalerState {
  scale: number;
  growthFactor: number;
  backoffFactor: number;
  growthInterval: number;
  growthTracker: number;
}

/** What {@link GradScaler.loadStateDict} takes. */
type LoadedScalerState = GradScalerState | EarlierGradScalerState | Record<string, never>;

function isEarlier(state: object): state is EarlierGradScalerState {
  return 'growthFactor' in state;
}

function checkOptimizer(op: string, value: ScalableOptimizer): void {
  if (typeof value?.step !== 'function' || !Array.isArray(value.paramGroups))
    throw unexpected(op, 'optimizer', 'an optimizer', value);
}

type Stage = 'ready' | 'unscaled' | 'stepped';

/**
 * Multiplies the loss by a factor before backward, divides the gradients by it before the
 * optimizer's step, skips the step if they are not finite, and adapts the factor.
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
  private current: number;
  private growthFactor: number;
  private backoffFactor: number;
  private growthInterval: number;
  private growthTracker = 0;
  private readonly stages = new Map<ScalableOptimizer, { stage: Stage; foundInf: boolean }>();

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
    this.current = initScale;
    this.growthFactor = growthFactor;
    this.backoffFactor = backoffFactor;
    this.growthInterval = growthInterval;
  }

  /** Whether losses are scaled; false makes every method pass its input through. */
  isEnabled(): boolean {
    return this.enabled;
  }

  /** The factor; 1 when not enabled. */
  getScale(): number {
    this.reportUse('getScale');
    return this.enabled ? this.current : 1;
  }

  /** The losses times the factor, in their dtype. */
  scale(outputs: Tensor): Tensor;
  scale(outputs: readonly Tensor[]): Tensor[];
  scale(outputs: Tensor | readonly Tensor[]): Tensor | Tensor[] {
    if (Array.isArray(outputs)) requireTensors(outputs, 'GradScaler.scale', 'outputs');
    else requireTensor(outputs, 'GradScaler.scale', 'outputs');
    this.reportUse('scale');
    const scaled = (t: Tensor): Tensor => (this.enabled ? t.mul(this.current) : t);
    return Array.isArray(outputs)
      ? (outputs as readonly Tensor[]).map(scaled)
      : scaled(outputs as Tensor);
  }

  /**
   * Divides the gradients by the factor, for code that reads them before the step, such as
   * clipping. At most once between updates. Waits for the gradients.
   *
   * @throws AmpError if called twice, or after `step`; ArgumentError for gradients of float16
   */
  unscale_(optimizer: ScalableOptimizer): void {
    checkOptimizer('GradScaler.unscale_', optimizer);
    if (!this.enabled) return;
    this.reportUse('unscale_');
    const before = this.stages.get(optimizer)?.stage ?? 'ready';
    if (before === 'unscaled')
      throw new AmpError(
        'GradScaler: unscale_ was already called for this optimizer since the last update()',
      );
    if (before === 'stepped')
      throw new AmpError('GradScaler: unscale_ was called after step(); call it before');
    const grads = optimizer.paramGroups
      .flatMap((group) => group.params.map(gradOf))
      .filter((g) => g !== null);
    this.stages.set(optimizer, {
      stage: 'unscaled',
      foundInf: noGrad(() => divideAll(grads, this.current)),
    });
  }

  /**
   * Unscales the gradients if that was not done, and runs `optimizer.step()` unless one is infinite
   * or NaN. Waits for the gradients.
   *
   * @throws AmpError if called twice between updates
   */
  step(optimizer: ScalableOptimizer): void {
    checkOptimizer('GradScaler.step', optimizer);
    if (!this.enabled) {
      optimizer.step();
      return;
    }
    this.reportUse('step');
    if (this.stages.get(optimizer)?.stage === 'stepped')
      throw new AmpError(
        'GradScaler: step was already called for this optimizer since the last update()',
      );
    if (this.stages.get(optimizer) === undefined) this.unscale_(optimizer);
    const state = this.stages.get(optimizer) as { stage: Stage; foundInf: boolean };
    if (!state.foundInf) optimizer.step();
    state.stage = 'stepped';
  }

  /**
   * Adapts the factor, or sets it: down if a step was skipped, up after many good ones. Call it
   * once in an iteration, after all steps.
   */
  update(newScale?: number): void {
    if (!this.enabled) return;
    this.reportUse('update');
    if (newScale !== undefined) {
      checkNumber('GradScaler.update', 'newScale', newScale, { above: 0 });
      this.current = newScale;
    } else {
      if (this.stages.size === 0)
        throw new AmpError(
          'GradScaler: update was called before any step(): nothing is known of the gradients',
        );
      this.adapt([...this.stages.values()].some((s) => s.foundInf));
    }
    this.stages.clear();
  }

  /** The state is in JavaScript, and a graph would keep that of its capture. */
  private reportUse(method: string): void {
    if (this.enabled) reportCall(this, method);
  }

  private adapt(foundInf: boolean): void {
    if (foundInf) {
      this.current *= this.backoffFactor;
      this.growthTracker = 0;
    } else if (++this.growthTracker === this.growthInterval) {
      const grown = this.current * this.growthFactor;
      if (Number.isFinite(Math.fround(grown))) this.current = grown;
      this.growthTracker = 0;
    }
  }

  /** The scale and the counters under PyTorch's names; `{}` when disabled. */
  stateDict(): GradScalerState | Record<string, never> {
    if (!this.enabled) return {};
    this.reportUse('stateDict');
    const { current: scale, growthFactor, backoffFactor, growthInterval, growthTracker } = this;
    return withPyTorchNames({ scale, growthFactor, backoffFactor, growthInterval, growthTracker });
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

  private prepareLoad(state: LoadedScalerState): () => void {
    if (!this.enabled) return () => {};
    this.reportUse('loadStateDict');
    if (Object.keys(optionsOf('GradScaler.loadStateDict', state)).length === 0)
      throw new ArgumentError(
        'GradScaler: the state is empty; it was saved by a scaler that was not enabled',
      );
    const { scale, growth_factor, backoff_factor, growth_interval, _growth_tracker } = isEarlier(
      state,
    )
      ? withPyTorchNames(state)
      : (state as GradScalerState);
    for (const [name, value] of Object.entries({
      scale,
      growth_factor,
      backoff_factor,
      growth_interval,
      _growth_tracker,
    }))
      checkNumber('GradScaler.loadStateDict', name, value, { from: 0 });
    return () => {
      this.current = scale;
      this.growthFactor = growth_factor;
      this.backoffFactor = backoff_factor;
      this.growthInterval = growth_interval;
      this.growthTracker = _growth_tracker;
    };
  }
}

function withPyTorchNames({
  scale,
  growthFactor,
  backoffFactor,
  growthInterval,
  growthTracker,
}: EarlierGradScalerState): GradScalerState {
  return {
    scale,
    growth_factor: growthFactor,
    backoff_factor: backoffFactor,
    growth_interval: growthInterval,
    _growth_tracker: growthTracker,
  };
}

/**
 * Divides gradients in place; returns whether any element is infinite or NaN. Reads one value from
 * the device.
 */
function divideAll(grads: readonly Tensor[], scale: number): boolean {
  let finite: Tensor | null = null;
  for (const g of grads) {
    if (g.dtype === float16)
      throw new ArgumentError(
        'GradScaler: gradients of float16 cannot be unscaled; keep the parameters in ' +
          'float32 and use autocast',
      );
    g.mul_(1 / scale);
    const ok = g.isfinite().all();
    finite = finite === null ? ok : finite.logicalAnd(ok);
  }
  return finite !== null && !finite.item<boolean>();
}
