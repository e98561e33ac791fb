/** What guards compare of attributes of modules that are inputs of the graph, as arguments are. */
import { shown } from '../../core/options.js';
import { Tensor } from '../../core/tensor.js';
import type { ReboundPlace } from '../rebound.js';
import type { Difference } from './facts.js';
import type { Matcher } from './matcher.js';
import type { MatcherFactory } from './matcher-factory.js';

type Attributes = Record<string, unknown>;

const valueAt = ({ module, name }: ReboundPlace): unknown => (module as Attributes)[name];

export class ReboundFacts {
  /** The attributes that held a tensor at the capture. */
  private readonly places: readonly ReboundPlace[];
  private readonly matchers: readonly Matcher[];
  /** The position of the first among the inputs. */
  private readonly first: number;

  constructor(places: readonly ReboundPlace[], first: number, factory: MatcherFactory) {
    this.places = places.filter((place) => valueAt(place) instanceof Tensor);
    this.first = first;
    this.matchers = this.places.map((place) => factory.argument(valueAt(place), place.path));
  }

  /** The tensors that the attributes hold, for the capture. */
  get tensors(): Tensor[] {
    return this.places.map((place) => valueAt(place) as Tensor);
  }

  has(t: Tensor): boolean {
    return this.places.some((place) => valueAt(place) === t);
  }

  isAt(module: object, name: string): boolean {
    return this.places.some((place) => place.module === module && place.name === name);
  }

  matches(inputs: readonly Tensor[]): boolean {
    const { places, matchers, first } = this;
    if (inputs.length !== first + places.length) return false;
    for (let i = 0; i < places.length; i++) {
      const input = inputs[first + i] as Tensor;
      if (valueAt(places[i] as ReboundPlace) !== input) return false;
      if (!(matchers[i] as Matcher).matches(input)) return false;
    }
    return true;
  }

  difference(inputs: readonly Tensor[]): Difference | null {
    for (const [i, place] of this.places.entries()) {
      const found = (this.matchers[i] as Matcher).difference(place.path, valueAt(place));
      if (found !== null) return found;
    }
    const { length } = this.places;
    if (this.matches(inputs)) return null;
    const now = shown(inputs.length - this.first);
    return { path: 'the number of attributes that are inputs', before: shown(length), now };
  }

  sentences(): string[] {
    return this.places.flatMap(({ path }, i) => (this.matchers[i] as Matcher).sentences(path));
  }
}
