"""Architectures of fields that torchvision, transformers and timm leave out, for the zoo: restoration and generation of
images, detection, matching, volumes, video, sound, time series, texts, graphs, molecules, proteins, point clouds, tables, recommendation,
optical flow, depth, policies and physics.

They are written in the plain style of research code: what an exporter makes of such modules differs from what it makes of
the libraries' code.
"""

from __future__ import annotations

import zoo_agents
import zoo_attending
import zoo_choices
import zoo_codecs
import zoo_densities
import zoo_editing
import zoo_finders
import zoo_forecasts
import zoo_frames
import zoo_fusions
import zoo_generators
import zoo_geometry
import zoo_grids
import zoo_hearing
import zoo_images
import zoo_instances
import zoo_labels
import zoo_languages
import zoo_makers
import zoo_matching
import zoo_mixing
import zoo_motion
import zoo_noticing
import zoo_operators
import zoo_physics
import zoo_pictures
import zoo_policies
import zoo_reading
import zoo_relations
import zoo_restoration
import zoo_scenes
import zoo_science
import zoo_selection
import zoo_sequences
import zoo_sets
import zoo_signals
import zoo_sounds
import zoo_speakers
import zoo_structures
import zoo_tables
import zoo_texts
import zoo_views
import zoo_visits
import zoo_voices

#: Functions that make the module, and its inputs for a batch.
FIELDS = (
    zoo_restoration.MODELS
    | zoo_images.MODELS
    | zoo_signals.MODELS
    | zoo_sets.MODELS
    | zoo_scenes.MODELS
    | zoo_motion.MODELS
    | zoo_sounds.MODELS
    | zoo_sequences.MODELS
    | zoo_relations.MODELS
    | zoo_tables.MODELS
    | zoo_forecasts.MODELS
    | zoo_densities.MODELS
    | zoo_views.MODELS
    | zoo_texts.MODELS
    | zoo_choices.MODELS
    | zoo_physics.MODELS
    | zoo_voices.MODELS
    | zoo_frames.MODELS
    | zoo_finders.MODELS
    | zoo_geometry.MODELS
    | zoo_instances.MODELS
    | zoo_editing.MODELS
    | zoo_codecs.MODELS
    | zoo_structures.MODELS
    | zoo_labels.MODELS
    | zoo_selection.MODELS
    | zoo_operators.MODELS
    | zoo_policies.MODELS
    | zoo_generators.MODELS
    | zoo_hearing.MODELS
    | zoo_attending.MODELS
    | zoo_matching.MODELS
    | zoo_reading.MODELS
    | zoo_languages.MODELS
    | zoo_fusions.MODELS
    | zoo_science.MODELS
    | zoo_agents.MODELS
    | zoo_makers.MODELS
    | zoo_noticing.MODELS
    | zoo_mixing.MODELS
    | zoo_speakers.MODELS
    | zoo_pictures.MODELS
    | zoo_grids.MODELS
    | zoo_visits.MODELS
)
